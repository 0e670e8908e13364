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
	return signers[0].Signature, nil
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
	theirs, err := parseID(asn1.RawValue{FullBytes: both})
	return err == nil && theirs.Serial == s.Serial && theirs.Issuer == s.Issuer
}

func (s signerInfo) verify(content []byte, key crypto.PublicKey) error {
	at := slices.IndexFunc(hashings, func(h hashing) bool { return h.digest.Equal(s.Digest.Algorithm) })
	if at < 0 {
		return fmt.Errorf("%w: modules are not signed with hash %s", errSignature, s.Digest.Algorithm)
	}
	h := hashings[at]
	digest, _, err := Options{Hash: h.hash}.Digest(content)
	if err != nil {
		return err
	}
	if s.Attributes.FullBytes != nil {
		if digest, err = s.signedDigest(h, digest); err != nil {
			return err
		}
	}
	algorithm := s.Algorithm.Algorithm
	switch key := key.(type) {
	case *rsa.PublicKey:
		if !algorithm.Equal(oidRSA) && !algorithm.Equal(h.rsa) {
			return fmt.Errorf("%w: algorithm %s with an RSA key", ErrInvalid, algorithm)
		}
		if err := rsa.VerifyPKCS1v15(key, h.hash, digest, s.Signature); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	case *ecdsa.PublicKey:
		if !algorithm.Equal(h.ecdsa) {
			return fmt.Errorf("%w: algorithm %s with an ECDSA key", ErrInvalid, algorithm)
		}
		if !ecdsa.VerifyASN1(key, digest, s.Signature) {
			return ErrInvalid
		}
	default:
		return fmt.Errorf("%w: kernels take RSA and ECDSA keys only, and this one is of type %T", errSignature, key)
	}
	return nil
}

// stringSET are octet strings; see attributeSET for the name.
type stringSET [][]byte

// signedDigest is the digest that was signed where there are attributes: that of the attributes.
// One of these must be the module's digest (RFC 5652, section 5.4).
func (s signerInfo) signedDigest(h hashing, module []byte) ([]byte, error) {
	found := false
	for rest := s.Attributes.Bytes; len(rest) > 0; {
		var attribute struct {
			Type   asn1.ObjectIdentifier
			Values asn1.RawValue
		}
		var err error
		if rest, err = unmarshal(rest, &attribute); err != nil {
			return nil, err
		}
		if !attribute.Type.Equal(oidDigest) {
			continue
		}
		var values stringSET
		if _, err := unmarshal(attribute.Values.FullBytes, &values); err != nil {
			return nil, err
		}
		if found || len(values) != 1 || !bytes.Equal(values[0], module) {
			return nil, fmt.Errorf("%w: it belongs to another module", ErrInvalid)
		}
		found = true
	}
	if !found {
		return nil, fmt.Errorf("%w: its attributes lack the digest", ErrInvalid)
	}
	set, err := marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSet, IsCompound: true, Bytes: s.Attributes.Bytes})
	if err != nil {
		return nil, err
	}
	digest, _, err := Options{Hash: h.hash}.Digest(set)
	return digest, err
}
