// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes below
	_ "crypto/sha512" // the hashes below
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
	Content      []asn1.RawValue
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	Revoked      asn1.RawValue `asn1:"optional,tag:1"`
	Signers      []signerData  `asn1:"set"`
}

type signerData struct {
	Version    int
	ID         asn1.RawValue
	Digest     algorithmIdentifier
	Attributes asn1.RawValue `asn1:"optional,tag:0"` // signed; sign-file makes none
	Algorithm  algorithmIdentifier
	Signature  []byte
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
	kind, err := marshal(oidData)
	if err != nil {
		return nil, err
	}
	data.Content = []asn1.RawValue{{FullBytes: kind}}
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

// Object identifiers of a PKCS#7 message.
var (
	oidData       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSignedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidRSA        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidDigest     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
)

// hashing is a hash and its names.
type hashing struct {
	name string
	hash crypto.Hash
	// digest names the hash; ecdsa and rsa name a signature over it. (sign-file just says RSA.)
	digest, ecdsa, rsa asn1.ObjectIdentifier
}

// hashings that kernels take and sign-file makes. Newer kernels refuse SHA-1, which is broken.
var hashings = []hashing{
	{
		name: "sha256", hash: crypto.SHA256, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11},
	},
	{
		name: "sha384", hash: crypto.SHA384, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12},
	},
	{
		name: "sha512", hash: crypto.SHA512, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 4}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 13},
	},
}

// hashName is sign-file's name of a digest algorithm, or else its object identifier.
func hashName(oid asn1.ObjectIdentifier) string {
	for _, h := range hashings {
		if h.digest.Equal(oid) {
			return h.name
		}
	}
	return oid.String()
}

func hashingOf(hash crypto.Hash) (hashing, error) {
	for _, h := range hashings {
		if h.hash == hash {
			return h, nil
		}
	}
	return hashing{}, fmt.Errorf("%w: modules are not signed with hash %v", errSignature, hash)
}
