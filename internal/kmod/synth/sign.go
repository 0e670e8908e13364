// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"math/big"
	"time"
)

// Object identifiers of a PKCS#7 message.
var (
	oidData            = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSignedData      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidSHA256          = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidRSA             = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidECDSAWithSHA256 = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
)

type algorithm struct {
	Algorithm  asn1.ObjectIdentifier
	Parameters asn1.RawValue `asn1:"optional"`
}

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content signedData `asn1:"explicit,tag:0"`
}

type signedData struct {
	Version      int
	Digests      []algorithm `asn1:"set"`
	Content      struct{ Type asn1.ObjectIdentifier }
	Certificates asn1.RawValue `asn1:"optional"`
	Signers      []signerInfo  `asn1:"set"`
}

type signerInfo struct {
	Version   int
	ID        asn1.RawValue
	Digest    algorithm
	Algorithm algorithm
	Signature []byte
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial asn1.RawValue
}

// SignOptions are what the kernel's sign-file can choose, and one thing that other tools do.
type SignOptions struct {
	// BySubjectKeyID names the signer by that (sign-file -k); default is issuer and serial number.
	BySubjectKeyID bool
	// WithCertificate puts the certificate into the message.
	WithCertificate bool
}

// Sign appends a signature to a module's file as the kernel's sign-file does: PKCS#7, detached, SHA-256, no attributes.
// The key is RSA or ECDSA and belongs to the certificate. A kernel that trusts the certificate accepts the result.
func Sign(file []byte, certificate *x509.Certificate, key crypto.Signer, o SignOptions) ([]byte, error) {
	digest := sha256.Sum256(file)
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	signer := signerInfo{Version: 1, Digest: algorithm{Algorithm: oidSHA256}, Algorithm: algorithm{oidRSA, asn1.NullRawValue}, Signature: signature}
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		signer.Algorithm = algorithm{Algorithm: oidECDSAWithSHA256}
	}
	if signer.ID.FullBytes, err = signerID(certificate, o); err != nil {
		return nil, err
	}
	data := signedData{Version: 1, Digests: []algorithm{signer.Digest}, Signers: []signerInfo{signer}}
	data.Content.Type = oidData
	if o.BySubjectKeyID {
		data.Version, data.Signers[0].Version = 3, 3
	}
	if o.WithCertificate {
		data.Certificates = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: certificate.Raw}
	}
	message, err := asn1.Marshal(contentInfo{Type: oidSignedData, Content: data})
	if err != nil {
		return nil, fmt.Errorf("PKCS#7: %w", err)
	}
	return AppendSignature(file, message), nil
}

// Owner has a key to sign modules with.
type Owner struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// NewOwner makes a key and the certificate that a keyring needs for it. Kernels ignore a certificate's dates.
func NewOwner(name string) (*Owner, error) {
	const bits, serialBits = 2048, 63
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	id := sha256.Sum256(key.N.Bytes())
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, SubjectKeyId: id[:20], KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2049, time.December, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return &Owner{Certificate: certificate, key: key}, nil
}

// Sign is Sign with the owner's key.
func (o *Owner) Sign(file []byte, options SignOptions) ([]byte, error) {
	return Sign(file, o.Certificate, o.key, options)
}

func signerID(certificate *x509.Certificate, o SignOptions) ([]byte, error) {
	if o.BySubjectKeyID {
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
		return nil, fmt.Errorf("PKCS#7: %w", err)
	}
	return der, nil
}

// AppendSignature appends any PKCS#7 message, the kernel's description of it and the mark that ends signed modules.
func AppendSignature(file, message []byte) []byte {
	out := append(bytes.Clone(file), message...)
	out = append(out, 0, 0, 2, 0, 0, 0, 0, 0) // struct module_signature: type PKCS#7, everything else zero
	out = binary.BigEndian.AppendUint32(out, uint32(len(message)))
	return append(out, "~Module signature appended~\n"...)
}
