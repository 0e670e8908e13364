// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"testing"

	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// FuzzVerify: nothing is verified but the bytes that were signed.
func FuzzVerify(f *testing.F) {
	// The same key in each process that fuzzes.
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	owner := certificate(f, key, pkix.Name{CommonName: "Driver key"})
	file := synth.Module{Name: "a"}.Bytes()
	for _, o := range []synth.SignOptions{{}, {BySubjectKeyID: true}, {WithCertificate: true}} {
		signed, err := synth.Sign(file, owner, key, o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(signed)
	}
	f.Add(signed(f, ecdsaKey(f), pkix.Name{CommonName: "Another"}, synth.SignOptions{}))
	f.Add([]byte("~Module signature appended~\n"))
	f.Fuzz(func(t *testing.T, module []byte) {
		if signature.Verify(module, owner) != nil {
			return
		}
		content, _, err := signature.Split(module)
		if err != nil || !bytes.Equal(content, file) {
			t.Errorf("what nobody has signed is verified, %v", err)
		}
	})
}
