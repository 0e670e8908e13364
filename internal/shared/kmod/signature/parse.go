// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
)

// signerInfo is one signer's part of a message.
type signerInfo struct {
	Signer
	// digest and algorithm are object identifiers.
	digest, algorithm string
	// attributes are the body of the signed attributes; nil when the module itself was signed.
	attributes []byte
	value      []byte
}

// parsePKCS7 reads the signers of a SignedData message (RFC 5652, section 5.1).
func parsePKCS7(message []byte) ([]signerInfo, error) {
	content, err := sequence(message) // ContentInfo
	if err != nil {
		return nil, err
	}
	kind, content, err := element(content, asn1.ClassUniversal, asn1.TagOID)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(kind, []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02")) { // 1.2.840.113549.1.7.2
		return nil, fmt.Errorf("%w is not PKCS#7 signed data", errSignature)
	}
	explicit, _, err := element(content, asn1.ClassContextSpecific, 0)
	if err != nil {
		return nil, err
	}
	data, err := sequence(explicit) // SignedData
	if err != nil {
		return nil, err
	}
	for _, tag := range []int{asn1.TagInteger, asn1.TagSet, asn1.TagSequence} { // version, digest algorithms, content
		if _, data, err = element(data, asn1.ClassUniversal, tag); err != nil {
			return nil, err
		}
	}
	for _, tag := range []int{0, 1} { // certificates, revocation lists
		if _, rest, err := element(data, asn1.ClassContextSpecific, tag); err == nil {
			data = rest
		}
	}
	infos, _, err := element(data, asn1.ClassUniversal, asn1.TagSet)
	if err != nil {
		return nil, err
	}
	return parseSigners(infos)
}

// maxSigners bounds the signers of one signature; modules have one.
const maxSigners = 16

func parseSigners(infos []byte) ([]signerInfo, error) {
	var all []signerInfo
	for len(infos) > 0 {
		if len(all) == maxSigners {
			return nil, fmt.Errorf("%w by more than %d signers", errSignature, maxSigners)
		}
		info, rest, err := element(infos, asn1.ClassUniversal, asn1.TagSequence)
		if err != nil {
			return nil, err
		}
		infos = rest
		one, err := parseSigner(info)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w without a signer", errSignature)
	}
	return all, nil
}

// parseSigner reads the body of a SignerInfo: version, who signed, digest algorithm, signed
// attributes (sign-file makes none), signature algorithm, signature.
func parseSigner(info []byte) (s signerInfo, err error) {
	if _, info, err = element(info, asn1.ClassUniversal, asn1.TagInteger); err != nil {
		return s, err
	}
	if s.Signer, info, err = parseID(info); err != nil {
		return s, err
	}
	if s.digest, info, err = algorithm(info); err != nil {
		return s, err
	}
	s.Hash = hashName(s.digest)
	if attributes, rest, err := element(info, asn1.ClassContextSpecific, 0); err == nil {
		s.attributes, info = attributes, rest
	}
	if s.algorithm, info, err = algorithm(info); err != nil {
		return s, err
	}
	s.value, _, err = element(info, asn1.ClassUniversal, asn1.TagOctetString)
	return s, err
}

// parseID reads issuer and serial number, or [0] subject key identifier.
func parseID(info []byte) (s Signer, rest []byte, err error) {
	if id, rest, err := element(info, asn1.ClassContextSpecific, 0); err == nil && len(id) > 0 {
		return Signer{KeyID: hex.EncodeToString(id)}, rest, nil
	}
	both, rest, err := element(info, asn1.ClassUniversal, asn1.TagSequence)
	if err != nil {
		return s, nil, err
	}
	issuer, both, err := element(both, asn1.ClassUniversal, asn1.TagSequence)
	if err != nil {
		return s, nil, err
	}
	serial, _, err := element(both, asn1.ClassUniversal, asn1.TagInteger)
	if err != nil {
		return s, nil, err
	}
	name, err := keyName(issuer)
	return Signer{Serial: hex.EncodeToString(serial), Issuer: name}, rest, err
}

// algorithm returns the object identifier of an AlgorithmIdentifier, and what follows.
func algorithm(der []byte) (oid string, rest []byte, err error) {
	body, rest, err := element(der, asn1.ClassUniversal, asn1.TagSequence)
	if err != nil {
		return "", nil, err
	}
	var id asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(body, &id); err != nil {
		return "", nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
	}
	return id.String(), rest, nil
}

func sequence(der []byte) ([]byte, error) {
	body, _, err := element(der, asn1.ClassUniversal, asn1.TagSequence)
	return body, err
}

// element returns the body of der's first element, of the given class and tag, and the rest.
func element(der []byte, class, tag int) (body, rest []byte, err error) {
	var raw asn1.RawValue
	rest, err = asn1.Unmarshal(der, &raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
	}
	if raw.Class != class || raw.Tag != tag {
		return nil, nil, fmt.Errorf("%w is malformed: element %d of class %d instead of %d of class %d", errSignature, raw.Tag, raw.Class, tag,
			class)
	}
	return raw.Bytes, rest, nil
}
