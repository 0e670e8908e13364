// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// secrets writes a key and its certificate as a Secret holds them.
func secrets(t *testing.T, name string) (key, cert string, certificate *x509.Certificate) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, NotAfter: time.Unix(2_000_000_000, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, cert = filepath.Join(dir, "key"), filepath.Join(dir, "cert")
	err = errors.Join(
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600),
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return key, cert, certificate
}

func step(t *testing.T, args ...string) *result.Result {
	t.Helper()
	var out bytes.Buffer
	c := root()
	c.SetOut(&out)
	c.SetArgs(append(args, "--termination-message", filepath.Join(t.TempDir(), "message")))
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	r, err := result.Parse(out.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inLayout reads a file of a layout's image.
func inLayout(t *testing.T, dir, name string) []byte {
	t.Helper()
	layout, err := ocidir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = layout.Close() }()
	top, err := layout.Top()
	if err != nil {
		t.Fatal(err)
	}
	image, ok := top.(v1.Image)
	if !ok {
		t.Fatalf("not an image: %T", top)
	}
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == strings.TrimPrefix(name, "/") {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
}

// TestSignedModulesAreSignedAgain by the commands of a Job, with real keys: the second signature
// comes behind the first.
func TestSignedModulesAreSignedAgain(t *testing.T) {
	source, layout := t.TempDir(), t.TempDir()
	plain := synth.Module{Name: "demo"}.Bytes()
	if err := os.WriteFile(filepath.Join(source, "demo.ko"), plain, 0o600); err != nil {
		t.Fatal(err)
	}
	step(t, "pack", "--root", source, "--kernel", "6.1.0", "--layout", layout)
	const name = "/opt/lib/modules/6.1.0/extra/demo.ko"
	var last []byte
	var certificates []*x509.Certificate
	for at, who := range []string{"vendor", "owner"} {
		key, cert, certificate := secrets(t, who)
		certificates = append(certificates, certificate)
		r := step(t, "sign", "--layout", layout, "--key", key, "--cert", cert, "--file", "/opt/lib/modules/*/extra/*.ko")
		if r.Signed != 1 || r.Signer.Subject != "CN="+who || r.Signer.NotAfter.Unix() != 2_000_000_000 ||
			len(r.Signer.Fingerprint) != hex.EncodedLen(sha256.Size) {
			t.Errorf("result %+v", r)
		}
		last = inLayout(t, layout, name)
		if err := signature.Verify(last, certificate); err != nil {
			t.Error(err)
		}
		if got := len(signature.List(last)); got != at+1 {
			t.Errorf("%d signatures instead of %d", got, at+1)
		}
	}
	if err := signature.Verify(last, certificates[0]); err == nil {
		t.Error("the vendor's key verifies the owner's signature")
	}
	first, _, err := signature.Split(last)
	if err != nil || signature.Verify(first, certificates[0]) != nil {
		t.Errorf("the vendor's signature is not below the owner's: %v", err)
	}
	content, _, err := signature.Split(first)
	if err != nil || !bytes.Equal(content, plain) {
		t.Errorf("without signatures it is not what was compiled: %d bytes of %d, %v", len(content), len(plain), err)
	}
}

func TestOtherFilesAreNotSigned(t *testing.T) {
	source, layout := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "demo.ko"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	step(t, "pack", "--root", source, "--kernel", "6.1.0", "--layout", layout)
	key, cert, _ := secrets(t, "owner")
	message := filepath.Join(t.TempDir(), "message")
	c := root()
	c.SetOut(io.Discard)
	c.SetArgs([]string{"sign", "--layout", layout, "--key", key, "--cert", cert, "--file", "/opt/lib/modules/*/extra/*",
		"--termination-message", message})
	err := c.ExecuteContext(t.Context())
	raw, readErr := os.ReadFile(message)
	if err == nil || readErr != nil || !strings.Contains(string(raw), `"reason":"NotModule"`) ||
		!strings.Contains(string(raw), "extra/demo.ko") {
		t.Errorf("error %v, message %s, %v", err, raw, readErr)
	}
}
