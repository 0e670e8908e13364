// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/drover-project/drover/internal/shared/kmod/sign"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const vermagic = "6.1.0-56-amd64 SMP preempt mod_unload modversions "

func module(name string) []byte {
	return synth.Module{Name: name, Vermagic: vermagic, License: "GPL", Exports: []string{"from_" + name}}.Bytes()
}

// Keys take long to make under the race detector, so tests share them.
var (
	rsaKey   = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	otherKey = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var (
	notBefore = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
)

// certificate makes one that signed itself, with names as openssl writes them and a serial number
// that needs a zero byte in front.
func certificate(t testing.TB, key crypto.Signer) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte("\xf1234567890123456789")), SubjectKeyId: []byte{0xab, 1},
		Subject:   pkix.Name{CommonName: "Prüfschlüssel", Organization: []string{"Example"}, Country: []string{"DE"}},
		NotBefore: notBefore, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return must(x509.ParseCertificate(der))
}

func keyOf(t testing.TB, key crypto.Signer) sign.Key {
	t.Helper()
	made, err := sign.NewKey(key, certificate(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// ways are all the ways to sign with a key.
var ways = map[string]struct {
	hash    string
	flags   []string
	options sign.Options
}{
	"sha256":            {hash: "sha256"},
	"sha256, by key ID": {hash: "sha256", flags: []string{"-k"}, options: sign.Options{BySubjectKeyID: true}},
	"sha384":            {hash: "sha384", options: sign.Options{Hash: crypto.SHA384}},
	"sha512":            {hash: "sha512", options: sign.Options{Hash: crypto.SHA512}},
	"sha512, by key ID": {hash: "sha512", flags: []string{"-k"}, options: sign.Options{Hash: crypto.SHA512, BySubjectKeyID: true}},
}

// signFile gives the content of the signed file, which is the given one's if that was signed
// already.
func signFile(name string, content []byte, key sign.Key, o sign.Options) ([]byte, error) {
	from, err := fstest.MapFS{"file": {Data: content}}.Open("file")
	if err != nil {
		return nil, err
	}
	var to bytes.Buffer
	changed, err := sign.File(name, from, &to, key, o)
	if err != nil {
		return nil, err
	}
	if !changed {
		return content, nil
	}
	return to.Bytes(), nil
}
