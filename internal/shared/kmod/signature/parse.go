// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// signerInfo is one signer's part of a message.
type signerInfo struct {
	Signer
	signerData
}

// maxSigners bounds the signers of one signature; modules have one.
const maxSigners = 16

// parsePKCS7 reads the signers of a SignedData message (RFC 5652, section 5.1).
func parsePKCS7(message []byte) ([]signerInfo, error) {
	var content struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,tag:0"`
	}
	if _, err := unmarshal(message, &content); err != nil {
		return nil, err
	}
	if !content.Type.Equal(oidSignedData) {
		return nil, fmt.Errorf("%w is not PKCS#7 signed data", errSignature)
	}
	var data signedData
	if _, err := unmarshal(content.Content.Bytes, &data); err != nil {
		return nil, err
	}
	if len(data.Signers) == 0 {
		return nil, fmt.Errorf("%w without a signer", errSignature)
	}
	if len(data.Signers) > maxSigners {
		return nil, fmt.Errorf("%w by more than %d signers", errSignature, maxSigners)
	}
	var all []signerInfo
	for _, one := range data.Signers {
		signer, err := parseID(one.ID)
		if err != nil {
			return nil, err
		}
		signer.Hash = hashName(one.Digest.Algorithm)
		all = append(all, signerInfo{signer, one})
	}
	return all, nil
}

// parseID reads issuer and serial number, or [0] subject key identifier.
func parseID(id asn1.RawValue) (Signer, error) {
	if id.Class == asn1.ClassContextSpecific && id.Tag == 0 && len(id.Bytes) > 0 {
		return Signer{KeyID: hex.EncodeToString(id.Bytes)}, nil
	}
	var by struct {
		Issuer []attributeSET
		Serial asn1.RawValue // with the zero byte in front that big.Int drops
	}
	if _, err := unmarshal(id.FullBytes, &by); err != nil {
		return Signer{}, err
	}
	if by.Serial.Class != asn1.ClassUniversal || by.Serial.Tag != asn1.TagInteger {
		return Signer{}, fmt.Errorf("%w is malformed: the serial number is no number", errSignature)
	}
	return Signer{Serial: hex.EncodeToString(by.Serial.Bytes), Issuer: keyName(by.Issuer)}, nil
}

// unmarshal reads the first element, and returns the rest.
func unmarshal(der []byte, into any) (rest []byte, err error) {
	rest, err = asn1.Unmarshal(der, into)
	if errors.As(err, new(asn1.StructuralError)) { // whose text is about Go's types
		return nil, fmt.Errorf("%w is malformed: it is not built like PKCS#7", errSignature)
	}
	if err != nil {
		return nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
	}
	return rest, nil
}

// attributeSET is a part of an X.501 name; encoding/asn1 reads a SET by the end of the type's name.
// Values are as they are encoded: certificates do not keep to the alphabets of their strings.
type attributeSET []struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// keyName is the kernel's name of a key (crypto/asymmetric_keys/x509_cert_parser.c): the common
// name, with the organization in front unless both start alike; else the organization; else the
// e-mail address.
func keyName(name []attributeSET) string {
	parts := map[string]string{}
	for _, set := range name {
		for _, attribute := range set {
			parts[attribute.Type.String()] = strings.ToValidUTF8(string(attribute.Value.Bytes), "\uFFFD")
		}
	}
	common, organization, email := parts["2.5.4.3"], parts["2.5.4.10"], parts["1.2.840.113549.1.9.1"]
	const alike = 7
	switch {
	case common == "" && organization == "":
		return email
	case common == "":
		return organization
	case organization == "" || strings.HasPrefix(common, organization),
		len(common) >= alike && len(organization) >= alike && common[:alike] == organization[:alike]:
		return common
	}
	return organization + ": " + common
}
