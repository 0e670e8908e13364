// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
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

// ParseKey reads a key and its X.509 certificate, each as PEM or DER. The key is PKCS#8, PKCS#1
// (RSA) or SEC 1 (EC), not encrypted. With PEM the first block of the kind counts: what else
// openssl wrote to the file may stay there.
func ParseKey(key, certificate []byte) (Key, error) {
	k, err := parsePrivate(key)
	if err != nil {
		return nil, err
	}
	c, err := ParseCertificate(certificate)
	if err != nil {
		return nil, err
	}
	return NewKey(k, c)
}

// ParseCertificate reads an X.509 certificate, PEM or DER.
func ParseCertificate(content []byte) (*x509.Certificate, error) {
	for rest := content; !isDER(content); {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("the certificate is neither PEM nor DER%s", found(content))
		}
		if block.Type == "CERTIFICATE" || block.Type == "X509 CERTIFICATE" || block.Type == "TRUSTED CERTIFICATE" {
			content = block.Bytes
			break
		}
	}
	// Behind the certificate may be what openssl trusts it for, which does not matter here.
	var first asn1.RawValue
	if _, err := asn1.Unmarshal(content, &first); err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(first.FullBytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return certificate, nil
}

// isDER reports whether content starts with a whole sequence, as keys and certificates in DER do.
func isDER(content []byte) bool {
	var first asn1.RawValue
	_, err := asn1.Unmarshal(content, &first)
	return err == nil && first.Class == asn1.ClassUniversal && first.Tag == asn1.TagSequence
}

func parsePrivate(content []byte) (crypto.Signer, error) {
	if isDER(content) {
		return parsePrivateDER(content)
	}
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("the key is neither PEM nor DER%s", found(content))
		}
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY", strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return nil, ErrEncrypted
		case block.Type == "PRIVATE KEY", block.Type == "RSA PRIVATE KEY", block.Type == "EC PRIVATE KEY":
			return parsePrivateDER(block.Bytes)
		}
	}
}

// found names what there is instead, never its content.
func found(content []byte) string {
	var kinds []string
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		kinds = append(kinds, block.Type)
	}
	switch {
	case len(content) == 0:
		return ": it is empty"
	case len(kinds) > 0:
		return ": there is " + strings.Join(kinds, ", ")
	case bytes.HasPrefix(content, []byte("pkcs11:")):
		return ": PKCS#11 addresses are not supported"
	}
	return ""
}

func parsePrivateDER(der []byte) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	if isEncrypted(der) {
		return nil, ErrEncrypted
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key is not one that can sign")
	}
	return signer, nil
}

// isEncrypted recognises PKCS#8's EncryptedPrivateKeyInfo: an algorithm and an octet string, where
// a plain key begins with a version.
func isEncrypted(der []byte) bool {
	var encrypted struct {
		Algorithm struct {
			ID         asn1.ObjectIdentifier
			Parameters asn1.RawValue `asn1:"optional"`
		}
		Data []byte
	}
	rest, err := asn1.Unmarshal(der, &encrypted)
	return err == nil && len(rest) == 0
}
