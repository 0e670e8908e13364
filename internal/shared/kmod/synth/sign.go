// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// SignOptions are how to sign.
type SignOptions = signature.Options

// Sign appends a signature to a file, whatever it is and whatever it has already. The key is RSA or
// ECDSA and belongs to the certificate. A kernel that trusts the certificate accepts the result.
func Sign(file []byte, certificate *x509.Certificate, key crypto.Signer, o SignOptions) ([]byte, error) {
	digest, hash, err := o.Digest(file)
	if err != nil {
		return nil, err
	}
	value, err := key.Sign(rand.Reader, digest, hash)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	message, err := signature.Message(certificate, value, o)
	if err != nil {
		return nil, err
	}
	return AppendSignature(file, message), nil
}

// Owner has a key to sign modules with.
type Owner struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// NewOwner makes a key and the certificate that a keyring needs for it. Kernels ignore a
// certificate's dates.
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

// AppendSignature appends any PKCS#7 message, the kernel's description of it and the mark that ends
// signed modules.
func AppendSignature(file, message []byte) []byte {
	return append(bytes.Clone(file), signature.Trailer(message)...)
}
