// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Signature is what the signature at a module's end says about itself. Nothing of it is verified: only the kernel, which
// has the keys, can do that.
type Signature struct {
	// Signers say whose keys made the signature; the kernel asks for one that it trusts. Empty with a Problem.
	Signers []Signer
	// Certificates is true when the signature brings certificates along. The signer's key may then be trusted by way of
	// one of them, although no keyring has it.
	Certificates bool
	// Problem says why a signature cannot be read; empty when it can.
	Problem string
}

// Signer names a certificate, in one of the two ways that PKCS#7 has.
type Signer struct {
	// KeyID is the certificate's subject key identifier in hex (what `sign-file -k` writes); empty with the other way.
	KeyID string
	// Serial is the certificate's serial number in hex, all its bytes; empty with a KeyID.
	Serial string
	// Issuer is the issuer's name in the form in which the kernel shows names of keys; empty with a KeyID.
	Issuer string
}

// maxSignature bounds a signature, in bytes. RSA ones have some 500, with certificates a few thousand.
const maxSignature = 256 << 10

// signatureInfo is the size of struct module_signature, which stands between the signature and the mark: algorithm,
// hash, type of identifier, lengths of signer and key identifier, 3 bytes of padding, length of the signature (big-endian).
const (
	signatureInfo   = 12
	signatureTypeAt = 2
	signatureSizeAt = 8
	signaturePKCS7  = 2
)

var errSignature = errors.New("signature")

// parseSignature reads the signature at the end of a decompressed module; nil when there is none.
func parseSignature(raw []byte) *Signature {
	body, ok := bytes.CutSuffix(raw, []byte(signatureMark))
	if !ok {
		return nil
	}
	message, err := signatureMessage(body)
	if err != nil {
		return &Signature{Problem: err.Error()}
	}
	s, err := parsePKCS7(message)
	if err != nil {
		return &Signature{Problem: err.Error()}
	}
	return s
}

// signatureMessage cuts out the PKCS#7 message by the rules of the kernel's mod_check_sig.
func signatureMessage(body []byte) ([]byte, error) {
	if len(body) < signatureInfo {
		return nil, fmt.Errorf("%w cut short", errSignature)
	}
	body, info := body[:len(body)-signatureInfo], body[len(body)-signatureInfo:]
	size := binary.BigEndian.Uint32(info[signatureSizeAt:])
	if info[signatureTypeAt] != signaturePKCS7 {
		return nil, fmt.Errorf("%w of type %d, kernels take PKCS#7 (%d) only", errSignature, info[signatureTypeAt], signaturePKCS7)
	}
	for at, b := range info[:signatureSizeAt] {
		if at != signatureTypeAt && b != 0 {
			return nil, fmt.Errorf("%w with a header that is not PKCS#7's", errSignature)
		}
	}
	if uint64(size) >= uint64(len(body)) {
		return nil, fmt.Errorf("%w of %d bytes is longer than the file", errSignature, size)
	}
	if size > maxSignature {
		return nil, fmt.Errorf("%w of %d bytes, limit %d", errSignature, size, maxSignature)
	}
	return body[len(body)-int(size):], nil
}

// parsePKCS7 reads the signers of a SignedData message (RFC 5652, section 5.1). Every element is a part of the input, so
// the work is bounded by its length.
func parsePKCS7(message []byte) (*Signature, error) {
	content, err := sequence(message) // ContentInfo
	if err != nil {
		return nil, err
	}
	kind, content, err := element(content, asn1.ClassUniversal, asn1.TagOID)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(kind, []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02")) { // 1.2.840.113549.1.7.2
		return nil, fmt.Errorf("%w is no PKCS#7 signed data", errSignature)
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
	s := &Signature{}
	for _, tag := range []int{0, 1} { // certificates, revocation lists
		if body, rest, err := element(data, asn1.ClassContextSpecific, tag); err == nil {
			data = rest
			s.Certificates = s.Certificates || tag == 0 && len(body) > 0
		}
	}
	infos, _, err := element(data, asn1.ClassUniversal, asn1.TagSet)
	if err != nil {
		return nil, err
	}
	if s.Signers, err = signers(infos); err != nil {
		return nil, err
	}
	return s, nil
}

// maxSigners bounds the signers of one signature; modules have one.
const maxSigners = 16

func signers(infos []byte) ([]Signer, error) {
	var all []Signer
	for len(infos) > 0 {
		if len(all) == maxSigners {
			return nil, fmt.Errorf("%w by more than %d signers", errSignature, maxSigners)
		}
		info, rest, err := element(infos, asn1.ClassUniversal, asn1.TagSequence)
		if err != nil {
			return nil, err
		}
		infos = rest
		one, err := signer(info)
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

// signer reads the start of a SignerInfo: version, and issuer with serial number, or [0] subject key identifier.
func signer(info []byte) (Signer, error) {
	_, info, err := element(info, asn1.ClassUniversal, asn1.TagInteger)
	if err != nil {
		return Signer{}, err
	}
	if id, _, err := element(info, asn1.ClassContextSpecific, 0); err == nil && len(id) > 0 {
		return Signer{KeyID: hex.EncodeToString(id)}, nil
	}
	both, _, err := element(info, asn1.ClassUniversal, asn1.TagSequence)
	if err != nil {
		return Signer{}, err
	}
	issuer, rest, err := element(both, asn1.ClassUniversal, asn1.TagSequence)
	if err != nil {
		return Signer{}, err
	}
	serial, _, err := element(rest, asn1.ClassUniversal, asn1.TagInteger)
	if err != nil {
		return Signer{}, err
	}
	name, err := keyName(issuer)
	return Signer{Serial: hex.EncodeToString(serial), Issuer: name}, err
}

// Attribute types of names, as they are encoded.
const (
	oidCommonName   = "\x55\x04\x03"
	oidOrganization = "\x55\x04\x0a"
	oidEmail        = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01"
)

// keyName makes of an X.501 name what the kernel calls a key (crypto/asymmetric_keys/x509_cert_parser.c): the common
// name, with the organization in front unless both start alike; else the organization; else the e-mail address.
func keyName(name []byte) (string, error) {
	parts := map[string]string{}
	for len(name) > 0 {
		set, rest, err := element(name, asn1.ClassUniversal, asn1.TagSet)
		if err != nil {
			return "", err
		}
		name = rest
		for len(set) > 0 {
			var pair []byte
			if pair, set, err = element(set, asn1.ClassUniversal, asn1.TagSequence); err != nil {
				return "", err
			}
			kind, value, err := element(pair, asn1.ClassUniversal, asn1.TagOID)
			if err != nil {
				return "", err
			}
			var text asn1.RawValue
			if _, err := asn1.Unmarshal(value, &text); err != nil {
				return "", fmt.Errorf("%w has a malformed name: %w", errSignature, err)
			}
			if slices.Contains([]string{oidCommonName, oidOrganization, oidEmail}, string(kind)) {
				parts[string(kind)] = strings.ToValidUTF8(string(text.Bytes), "\uFFFD")
			}
		}
	}
	common, organization := parts[oidCommonName], parts[oidOrganization]
	const alike = 7
	switch {
	case common == "" && organization == "":
		return parts[oidEmail], nil
	case common == "":
		return organization, nil
	case organization == "" || strings.HasPrefix(common, organization),
		len(common) >= alike && len(organization) >= alike && common[:alike] == organization[:alike]:
		return common, nil
	}
	return organization + ": " + common, nil
}

func sequence(der []byte) ([]byte, error) {
	body, _, err := element(der, asn1.ClassUniversal, asn1.TagSequence)
	return body, err
}

// element returns the body of the first element of der, which must have the given class and tag, and what follows it.
func element(der []byte, class, tag int) (body, rest []byte, err error) {
	var raw asn1.RawValue
	rest, err = asn1.Unmarshal(der, &raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
	}
	if raw.Class != class || raw.Tag != tag {
		return nil, nil, fmt.Errorf("%w is malformed: element %d of class %d instead of %d of class %d", errSignature, raw.Tag, raw.Class, tag, class)
	}
	return raw.Bytes, rest, nil
}
