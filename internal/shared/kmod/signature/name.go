// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"encoding/asn1"
	"fmt"
	"slices"
	"strings"
)

// Attribute types of names, as they are encoded.
const (
	oidCommonName   = "\x55\x04\x03"
	oidOrganization = "\x55\x04\x0a"
	oidEmail        = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01"
)

// keyName is the kernel's name of a key (crypto/asymmetric_keys/x509_cert_parser.c) from an X.501
// name: the common name, with the organization in front unless both start alike; else the
// organization; else the e-mail address.
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
