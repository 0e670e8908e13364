// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/drover-project/drover/internal/shared/kmod/sign"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// FuzzParseKey: a key is one only together with its certificate, and errors do not quote it.
func FuzzParseKey(f *testing.F) {
	ec, err := x509.MarshalPKCS8PrivateKey(ecKey())
	if err != nil {
		f.Fatal(err)
	}
	der := certificate(f, ecKey()).Raw
	f.Add(ec, der)
	f.Add(pemOf("PRIVATE KEY", ec), pemOf("CERTIFICATE", der))
	f.Add(pemOf("ENCRYPTED PRIVATE KEY", ec), pemOf("TRUSTED CERTIFICATE", append(bytes.Clone(der), "trust"...)))
	f.Add([]byte("pkcs11:token=a"), []byte("0\x00"))
	f.Add(pemOf("PRIVATE KEY", ec), certificate(f, rsaKey()).Raw)
	f.Fuzz(func(t *testing.T, private, public []byte) {
		key, err := sign.ParseKey(private, public)
		if err != nil {
			if len(private) > 20 && strings.Contains(err.Error(), string(private)) {
				t.Error("the error quotes the key")
			}
			return
		}
		alone, err := sign.ParseCertificate(public)
		if err != nil || !alone.Equal(key.Certificate()) {
			t.Errorf("the certificate alone is another one, %v", err)
		}
	})
}

// FuzzFile: what is signed is a module, verifies, and is not signed a second time.
func FuzzFile(f *testing.F) {
	key := keyOf(f, ecKey())
	f.Add(module("a"))
	f.Add(append(module("b"), "~Module signature appended~\n"...))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, content []byte) {
		once, changed := signOnce(t, content, key)
		if !changed {
			return
		}
		if bytes.HasPrefix(once, content) { // it is not compressed
			if err := signature.Verify(once, key.Certificate()); err != nil {
				t.Error(err)
			}
		}
		if _, changed := signOnce(t, once, key); changed {
			t.Error("it is signed twice")
		}
	})
}

func signOnce(t *testing.T, content []byte, key sign.Key) (signed []byte, changed bool) {
	t.Helper()
	file, err := fstest.MapFS{"m.ko": {Data: content}}.Open("m.ko")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	changed, err = sign.File("m.ko", file, &out, key, sign.Options{})
	if err != nil && !errors.Is(err, sign.ErrNotModule) {
		t.Errorf("error %v is of no known kind", err)
	}
	if changed != (out.Len() > 0) {
		t.Errorf("changed: %v, but %d bytes", changed, out.Len())
	}
	return out.Bytes(), changed
}
