// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// certificate makes one that signed itself, with serial number 0x8102 and subject key identifier
// 0xab01.
func certificate(t testing.TB, key crypto.Signer, name pkix.Name) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0x8102), Subject: name, SubjectKeyId: []byte{0xab, 1},
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func ecdsaKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signed(t testing.TB, key crypto.Signer, name pkix.Name, o synth.SignOptions) []byte {
	t.Helper()
	file, err := synth.Sign(synth.Module{Name: "a"}.Bytes(), certificate(t, key, name), key, o)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func signatureOf(t *testing.T, file []byte) *signature.Signature {
	t.Helper()
	details, err := kmod.ReadDetails(file)
	if err != nil {
		t.Fatal(err)
	}
	if details.Info.Signed != (details.Signature != nil) {
		t.Errorf("signed: %v, signature %v", details.Info.Signed, details.Signature)
	}
	return details.Signature
}

func TestParse(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	email := pkix.AttributeTypeAndValue{Type: []int{1, 2, 840, 113549, 1, 9, 1}, Value: "keys@example.com"}
	serial := "008102" // with the zero byte that keeps the number positive, as the kernel shows it
	cases := map[string]struct {
		key   crypto.Signer
		name  pkix.Name
		given synth.SignOptions
		want  signature.Signature
	}{
		"issuer and serial, RSA": {key: rsaKey, name: pkix.Name{CommonName: "Driver key"},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "Driver key", Hash: "sha256"}}}},
		"issuer and serial, ECDSA": {name: pkix.Name{CommonName: "Driver key", Organization: []string{"Example"}, Country: []string{"DE"}},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "Example: Driver key", Hash: "sha256"}}}},
		"name starts with the organization": {name: pkix.Name{CommonName: "Example key", Organization: []string{"Example"}},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "Example key", Hash: "sha256"}}}},
		"name and organization start alike": {name: pkix.Name{CommonName: "Example key", Organization: []string{"Example Ltd."}},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "Example key", Hash: "sha256"}}}},
		"organization only": {name: pkix.Name{Organization: []string{"Example"}},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "Example", Hash: "sha256"}}}},
		"e-mail only": {name: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{email}},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "keys@example.com", Hash: "sha256"}}}},
		"no name": {want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Hash: "sha256"}}}},
		"subject key identifier": {given: synth.SignOptions{BySubjectKeyID: true},
			want: signature.Signature{Signers: []signature.Signer{{KeyID: "ab01", Hash: "sha256"}}}},
		"with certificate": {name: pkix.Name{CommonName: "k"}, given: synth.SignOptions{WithCertificate: true},
			want: signature.Signature{Signers: []signature.Signer{{Serial: serial, Issuer: "k", Hash: "sha256"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.key == nil {
				tc.key = ecdsaKey(t)
			}
			got := signatureOf(t, signed(t, tc.key, tc.name, tc.given))
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		if got := signatureOf(t, synth.Module{Name: "a"}.Bytes()); got != nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestParseProblem(t *testing.T) {
	const mark = "~Module signature appended~\n"
	file := synth.Module{Name: "a"}.Bytes()
	good := signed(t, ecdsaKey(t), pkix.Name{CommonName: "Driver key"}, synth.SignOptions{})
	info := len(good) - len(mark) - 12
	signedData := []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02")
	for name, tc := range map[string]struct {
		given []byte
		says  string
	}{
		"empty":                {given: synth.AppendSignature(file, nil), says: "malformed"},
		"other type":           {given: patch(good, info+2, "\x01"), says: "type 1"},
		"other algorithm":      {given: patch(good, info, "\x01"), says: "header"},
		"longer than the file": {given: patch(good, info+8, "\xff\xff\xff\xff"), says: "longer"},
		"out of bounds":        {given: synth.AppendSignature(file, make([]byte, 1<<20)), says: "limit"},
		"size too small":       {given: patch(good, info+8, "\x00\x00\x00\x10"), says: "malformed"},
		"not signed data": {given: bytes.Replace(good, signedData, []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"), 1),
			says: "is not PKCS#7"},
		"cut short":             {given: synth.AppendSignature(file, good[len(file):info-8]), says: "malformed"},
		"length without an end": {given: synth.AppendSignature(file, []byte("\x30\x80\x06\x09\x00\x00")), says: "malformed"},
		"no signers": {given: synth.AppendSignature(file, append(append([]byte("\x30\x18\x06\x09"), signedData...),
			"\xa0\x0b\x30\x09\x02\x01\x01\x31\x00\x30\x00\x31\x00"...)), says: "without a signer"},
	} {
		t.Run(name, func(t *testing.T) {
			got := signatureOf(t, tc.given)
			if got == nil || !strings.Contains(got.Problem, tc.says) || len(got.Signers) > 0 {
				t.Errorf("got %+v, want a problem with %q", got, tc.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	file := synth.Module{Name: "a", NoBuildID: true}.Bytes()
	for _, o := range []synth.SignOptions{{}, {BySubjectKeyID: true}, {WithCertificate: true}} {
		content := signed(f, ecdsaKey(f), pkix.Name{CommonName: "Driver key", Organization: []string{"Example"}}, o)
		f.Add(content[len(synth.Module{Name: "a"}.Bytes()) : len(content)-28-12])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		details, err := kmod.ReadDetails(synth.AppendSignature(file, message))
		if err != nil {
			t.Fatal(err) // a damaged signature does not make a module unreadable
		}
		s := details.Signature
		if s == nil || (s.Problem == "") == (len(s.Signers) == 0) {
			t.Errorf("signature %+v", s)
		}
	})
}

// patch writes a value over what is at a place.
func patch(content []byte, at int, value string) []byte {
	out := bytes.Clone(content)
	copy(out[at:], value)
	return out
}
