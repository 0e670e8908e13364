// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrOtherSigner is wrapped when the certificate's owner did not make the signature.
	ErrOtherSigner = errors.New("signed by another key")
	// ErrInvalid is wrapped when the named certificate's key did not sign this module.
	ErrInvalid = errors.New("the signature does not fit the module")
)

// Verify checks that the owner of a certificate made the last signature of a module. As in kernels,
// the certificate needs no chain and may be expired. The error wraps ErrUnsigned, ErrOtherSigner or
// ErrInvalid, or says why the signature cannot be read.
func Verify(module []byte, certificate *x509.Certificate) error {
	content, message, err := Split(module)
	if err != nil {
		return err
	}
	signers, err := parsePKCS7(message)
	if err != nil {
		return err
	}
	var others []string
	for _, signer := range signers {
		if signer.is(certificate) {
			return signer.verify(content, certificate.PublicKey)
		}
		others = append(others, signer.String())
	}
	return fmt.Errorf("%w: %v", ErrOtherSigner, others)
}

// Value is the bare signature in a PKCS#7 message, by the first signer if there are several.
func Value(message []byte) ([]byte, error) {
	signers, err := parsePKCS7(message)
	if err != nil {
		return nil, err
	}
	return signers[0].value, nil
}

// is reports whether the signer names a certificate, by the kernel's name of the issuer.
func (s signerInfo) is(certificate *x509.Certificate) bool {
	if s.KeyID != "" {
		return s.KeyID == hex.EncodeToString(certificate.SubjectKeyId)
	}
	both, err := signerID(certificate, Options{})
	if err != nil {
		return false
	}
	theirs, _, err := parseID(both)
	return err == nil && theirs.Serial == s.Serial && theirs.Issuer == s.Issuer
}

func (s signerInfo) verify(content []byte, key crypto.PublicKey) error {
	at := slices.IndexFunc(hashings, func(h hashing) bool { return h.digest.String() == s.digest })
	if at < 0 {
		return fmt.Errorf("%w: modules are not signed with hash %s", errSignature, s.digest)
	}
	h := hashings[at]
	digest, _, err := Options{Hash: h.hash}.Digest(content)
	if err != nil {
		return err
	}
	if s.attributes != nil {
		if digest, err = s.signedDigest(h, digest); err != nil {
			return err
		}
	}
	switch key := key.(type) {
	case *rsa.PublicKey:
		if s.algorithm != oidRSA.String() && s.algorithm != h.rsa.String() {
			return fmt.Errorf("%w: algorithm %s with an RSA key", ErrInvalid, s.algorithm)
		}
		if err := rsa.VerifyPKCS1v15(key, h.hash, digest, s.value); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	case *ecdsa.PublicKey:
		if s.algorithm != h.ecdsa.String() {
			return fmt.Errorf("%w: algorithm %s with an ECDSA key", ErrInvalid, s.algorithm)
		}
		if !ecdsa.VerifyASN1(key, digest, s.value) {
			return ErrInvalid
		}
	default:
		return fmt.Errorf("%w: kernels take RSA and ECDSA keys only, and this one is of type %T", errSignature, key)
	}
	return nil
}

// signedDigest is the digest that was signed where there are attributes: that of the attributes.
// One of these must be the module's digest (RFC 5652, section 5.4).
func (s signerInfo) signedDigest(h hashing, module []byte) ([]byte, error) {
	found := false
	for rest := s.attributes; len(rest) > 0; {
		var attribute struct {
			Type   asn1.ObjectIdentifier
			Values [][]byte `asn1:"set"`
		}
		body, after, err := element(rest, asn1.ClassUniversal, asn1.TagSequence)
		if err != nil {
			return nil, err
		}
		whole := rest[:len(rest)-len(after)]
		rest = after
		var id asn1.ObjectIdentifier
		if _, err := asn1.Unmarshal(body, &id); err != nil {
			return nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
		}
		if !id.Equal(oidDigest) {
			continue
		}
		if _, err := asn1.Unmarshal(whole, &attribute); err != nil {
			return nil, fmt.Errorf("%w is malformed: %w", errSignature, err)
		}
		if found || len(attribute.Values) != 1 || !bytes.Equal(attribute.Values[0], module) {
			return nil, fmt.Errorf("%w: it belongs to another module", ErrInvalid)
		}
		found = true
	}
	if !found {
		return nil, fmt.Errorf("%w: its attributes lack the digest", ErrInvalid)
	}
	set, err := marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSet, IsCompound: true, Bytes: s.attributes})
	if err != nil {
		return nil, err
	}
	digest, _, err := Options{Hash: h.hash}.Digest(set)
	return digest, err
}
