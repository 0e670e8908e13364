// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
)

// Options are the choices that sign-file has, and one of other tools.
type Options struct {
	// Hash is SHA-256, SHA-384 or SHA-512; SHA-256 if unset.
	Hash crypto.Hash
	// BySubjectKeyID names the signer by that (`sign-file -k`); default is issuer and serial number.
	BySubjectKeyID bool
	// WithCertificate puts the certificate into the message, as openssl does by default. For tests.
	WithCertificate bool
}

// Digest returns the digest of a module, to be signed, and the hash that made it.
func (o Options) Digest(module []byte) (digest []byte, hash crypto.Hash, err error) {
	h, err := o.hashing()
	if err != nil {
		return nil, 0, err
	}
	sum := h.hash.New()
	_, _ = sum.Write(module) // never fails
	return sum.Sum(nil), h.hash, nil
}

func (o Options) hashing() (hashing, error) {
	if o.Hash == 0 {
		o.Hash = crypto.SHA256
	}
	return hashingOf(o.Hash)
}

type algorithmIdentifier struct {
	Algorithm  asn1.ObjectIdentifier
	Parameters asn1.RawValue `asn1:"optional"`
}

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content signedData `asn1:"explicit,tag:0"`
}

type signedData struct {
	Version      int
	Digests      []algorithmIdentifier `asn1:"set"`
	Content      struct{ Type asn1.ObjectIdentifier }
	Certificates asn1.RawValue `asn1:"optional"`
	Signers      []signerData  `asn1:"set"`
}

type signerData struct {
	Version   int
	ID        asn1.RawValue
	Digest    algorithmIdentifier
	Algorithm algorithmIdentifier
	Signature []byte
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial asn1.RawValue
}

// Message wraps the signature over a module's digest into the PKCS#7 message that sign-file would
// make: detached, without attributes.
func Message(certificate *x509.Certificate, value []byte, o Options) ([]byte, error) {
	h, err := o.hashing()
	if err != nil {
		return nil, err
	}
	const byIssuer, byKeyID = 1, 3 // versions of the syntax (RFC 5652, section 5.1)
	signer := signerData{Version: byIssuer, Digest: algorithmIdentifier{Algorithm: h.digest}, Signature: value}
	if o.BySubjectKeyID {
		signer.Version = byKeyID
	}
	if signer.Algorithm, err = algorithmFor(certificate.PublicKey, h); err != nil {
		return nil, err
	}
	if signer.ID.FullBytes, err = signerID(certificate, o); err != nil {
		return nil, err
	}
	data := signedData{Version: signer.Version, Digests: []algorithmIdentifier{signer.Digest}, Signers: []signerData{signer}}
	data.Content.Type = oidData
	if o.WithCertificate {
		data.Certificates = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: certificate.Raw}
	}
	return marshal(contentInfo{Type: oidSignedData, Content: data})
}

// algorithmFor names the signatures that a key makes.
func algorithmFor(key crypto.PublicKey, h hashing) (algorithmIdentifier, error) {
	switch key.(type) {
	case *rsa.PublicKey:
		return algorithmIdentifier{Algorithm: oidRSA, Parameters: asn1.NullRawValue}, nil
	case *ecdsa.PublicKey:
		return algorithmIdentifier{Algorithm: h.ecdsa}, nil
	}
	return algorithmIdentifier{}, fmt.Errorf("%w: kernels take RSA and ECDSA keys only, and this one is of type %T", errSignature, key)
}

func signerID(certificate *x509.Certificate, o Options) ([]byte, error) {
	if o.BySubjectKeyID {
		if len(certificate.SubjectKeyId) == 0 {
			return nil, errors.New("the certificate has no subject key identifier to name the signer by")
		}
		return marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, Bytes: certificate.SubjectKeyId})
	}
	serial, err := marshal(certificate.SerialNumber)
	if err != nil {
		return nil, err
	}
	return marshal(issuerAndSerial{asn1.RawValue{FullBytes: certificate.RawIssuer}, asn1.RawValue{FullBytes: serial}})
}

func marshal(v any) ([]byte, error) {
	der, err := asn1.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write PKCS#7: %w", err)
	}
	return der, nil
}
