// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
)

// Key is a private key and its certificate. The key itself may be elsewhere, in a KMS or behind
// PKCS#11: it only has to sign a digest, for RSA with the padding of PKCS#1 v1.5.
type Key interface {
	crypto.Signer
	Certificate() *x509.Certificate
}

var (
	// ErrEncrypted is wrapped when a key needs a passphrase.
	ErrEncrypted = errors.New("the key is encrypted, and a Job cannot ask for its passphrase: store the key without one (openssl pkey -in " +
		"KEY -out PLAIN)")
	// ErrMismatch is wrapped when a key is not the one of the certificate.
	ErrMismatch = errors.New("the key does not belong to the certificate")
)

// NewKey joins a key and its certificate, which must match and be of a kind that kernels take.
func NewKey(key crypto.Signer, certificate *x509.Certificate) (Key, error) {
	switch public := certificate.PublicKey.(type) {
	case *rsa.PublicKey:
	case *ecdsa.PublicKey:
		if public.Curve == elliptic.P224() {
			return nil, errors.New("the certificate's key is on curve P-224, which kernels do not support: use P-256, P-384 or P-521")
		}
	default:
		return nil, fmt.Errorf("the certificate's key is of type %v (%T), and kernels take RSA (PKCS#1) and ECDSA keys only",
			certificate.PublicKeyAlgorithm, public)
	}
	comparable, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !comparable.Equal(certificate.PublicKey) {
		return nil, fmt.Errorf("%w: the key's public half has SHA-256 %s, the certificate's %s", ErrMismatch, publicDigest(key.Public()),
			publicDigest(certificate.PublicKey))
	}
	return pair{key, certificate}, nil
}

type pair struct {
	crypto.Signer
	certificate *x509.Certificate
}

// Certificate implements Key.
func (p pair) Certificate() *x509.Certificate { return p.certificate }

// Sign makes the same signature of the same digest each time, also with ECDSA (RFC 6979): what is
// signed again stays as it is.
func (p pair) Sign(random io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	if _, local := p.Signer.(*ecdsa.PrivateKey); local {
		random = nil
	}
	return p.Signer.Sign(random, digest, o) //nolint:wrapcheck // the key's own words
}

// publicDigest tells keys apart, as `openssl pkey -pubout -outform DER | sha256sum` does.
func publicDigest(key crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%x", sha256.Sum256(der))
}
