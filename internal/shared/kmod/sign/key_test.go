// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

func der(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	return must(x509.MarshalPKCS8PrivateKey(key))
}

func TestKeysInAllForms(t *testing.T) {
	rsaPrivate, _ := rsaKey().(*rsa.PrivateKey)
	ecPrivate, _ := ecKey().(*ecdsa.PrivateKey)
	sec1 := must(x509.MarshalECPrivateKey(ecPrivate))
	rsaCertificate, ecCertificate := certificate(t, rsaKey()), certificate(t, ecKey())
	rsaPEM := pemOf("CERTIFICATE", rsaCertificate.Raw)
	for name, tc := range map[string]struct {
		key, certificate []byte
		of               crypto.Signer
	}{
		"RSA, PKCS#8, PEM":      {pemOf("PRIVATE KEY", der(t, rsaKey())), rsaPEM, rsaKey()},
		"RSA, PKCS#8, DER":      {der(t, rsaKey()), rsaCertificate.Raw, rsaKey()},
		"RSA, PKCS#1, PEM":      {pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaPrivate)), rsaCertificate.Raw, rsaKey()},
		"RSA, PKCS#1, DER":      {x509.MarshalPKCS1PrivateKey(rsaPrivate), rsaPEM, rsaKey()},
		"EC, PKCS#8, PEM":       {pemOf("PRIVATE KEY", der(t, ecKey())), ecCertificate.Raw, ecKey()},
		"EC, SEC 1, DER":        {sec1, pemOf("CERTIFICATE", ecCertificate.Raw), ecKey()},
		"EC, SEC 1, PEM, curve": {append(pemOf("EC PARAMETERS", []byte{6, 0}), pemOf("EC PRIVATE KEY", sec1)...), ecCertificate.Raw, ecKey()},
		"both in one file, text in front": {
			append(append([]byte("Bag Attributes\n"), rsaPEM...), pemOf("PRIVATE KEY", der(t, rsaKey()))...),
			append(pemOf("PRIVATE KEY", der(t, rsaKey())), rsaPEM...), rsaKey(),
		},
		"certificate with openssl's trust": {der(t, rsaKey()), pemOf("TRUSTED CERTIFICATE", append(bytes.Clone(rsaCertificate.Raw), 0x30, 0)),
			rsaKey()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := sign.ParseKey(tc.key, tc.certificate)
			if err != nil {
				t.Fatal(err)
			}
			if public, ok := got.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(tc.of.Public()) {
				t.Errorf("another key: %v", got.Public())
			}
		})
	}
}

func TestKeysThatCannotSign(t *testing.T) {
	key, cert := pemOf("PRIVATE KEY", der(t, rsaKey())), certificate(t, rsaKey()).Raw
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	traditional := pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte{1, 2, 3},
	})
	// An EncryptedPrivateKeyInfo: PBES2, and octets.
	encrypted := append([]byte("\x30\x81\x8f\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d\x04\x7f"), make([]byte, 0x7f)...)
	encrypted[2] = byte(len(encrypted) - 3)
	for name, tc := range map[string]struct {
		key, certificate []byte
		is               error
		says             string
	}{
		"another certificate's": {key: key, certificate: certificate(t, otherKey()).Raw, is: sign.ErrMismatch, says: "SHA-256"},
		"another kind of key":   {key: key, certificate: certificate(t, ecKey()).Raw, is: sign.ErrMismatch},
		"encrypted, PKCS#8": {key: pemOf("ENCRYPTED PRIVATE KEY", []byte{1}), certificate: cert, is: sign.ErrEncrypted,
			says: "passphrase"},
		"encrypted, PKCS#8 in DER": {key: encrypted, certificate: cert, is: sign.ErrEncrypted},
		"encrypted, PKCS#1":        {key: traditional, certificate: cert, is: sign.ErrEncrypted},
		"certificate for key": {key: pemOf("CERTIFICATE", cert), certificate: cert,
			says: "key is neither PEM nor DER: there is CERTIFICATE"},
		"key for certificate":       {key: key, certificate: key, says: "certificate is neither PEM nor DER: there is PRIVATE KEY"},
		"key for certificate, DER":  {key: key, certificate: der(t, rsaKey()), says: "read the certificate"},
		"certificate for key, DER":  {key: cert, certificate: cert, says: "read the key"},
		"empty":                     {certificate: cert, says: "it is empty"},
		"PKCS#11":                   {key: []byte("pkcs11:token=x"), certificate: cert, says: "PKCS#11"},
		"base64 twice":              {key: []byte("LS0tLS1CRUdJTg=="), certificate: cert, says: "neither PEM nor DER"},
		"a curve that kernels lack": {key: der(t, p224), certificate: certificate(t, p224).Raw, says: "P-224"},
		"a kind that kernels lack":  {key: der(t, edwards), certificate: certificate(t, edwards).Raw, says: "Ed25519"},
		"certificate cut short":     {key: key, certificate: cert[:200], says: "neither PEM nor DER"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sign.ParseKey(tc.key, tc.certificate)
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v", err)
			}
			if err != nil && bytes.Contains([]byte(err.Error()), []byte("LS0t")) {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
}

func TestBySubjectKeyIDNeedsOne(t *testing.T) {
	cert := *certificate(t, rsaKey())
	cert.SubjectKeyId = nil
	key, err := sign.NewKey(rsaKey(), &cert)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signFile("a.ko", module("a"), key, sign.Options{BySubjectKeyID: true}); err == nil ||
		!strings.Contains(err.Error(), "no subject key identifier") {
		t.Errorf("error %v", err)
	}
}

// A key may live elsewhere: all that it gets is the digest.
type remote struct {
	crypto.Signer
	asked []int
}

func (r *remote) Sign(random io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	r.asked = append(r.asked, len(digest))
	return r.Signer.Sign(random, digest, o)
}

func TestRemoteKey(t *testing.T) {
	kms := &remote{Signer: rsaKey()}
	cert := certificate(t, rsaKey())
	key, err := sign.NewKey(kms, cert)
	if err != nil {
		t.Fatal(err)
	}
	local, err := sign.NewKey(rsaKey(), cert)
	if err != nil {
		t.Fatal(err)
	}
	got, err := signFile("a.ko", module("a"), key, sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := signFile("a.ko", module("a"), local, sign.Options{})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("another signature than the local key's: %v", err)
	}
	if diff := cmp.Diff([]int{32}, kms.asked); diff != "" {
		t.Errorf("asked for signatures over: %s", diff)
	}
}

func TestExpiredCertificatesSign(t *testing.T) {
	cert := certificate(t, rsaKey())
	cert.NotAfter = notBefore
	key, err := sign.NewKey(rsaKey(), cert)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signFile("a.ko", module("a"), key, sign.Options{}); err != nil {
		t.Error(err)
	}
}
