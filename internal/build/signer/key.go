// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

// Key signs files.
type Key struct {
	// Sign writes the signed kernel module, or nothing and false if this key has signed it already.
	Sign repack.Change
	// Signer is what others may know about it.
	Signer *result.Signer
}

// KeyReader makes a key of the contents of two files.
type KeyReader func(key, certificate []byte) (*Key, error)

// ReadKey is the [KeyReader] of keys in Secrets. Keys in hardware or a service would come in here.
func ReadKey(key, certificate []byte) (*Key, error) {
	k, err := sign.ParseKey(key, certificate)
	if err != nil {
		return nil, err
	}
	return &Key{Signer: describe(k.Certificate()), Sign: func(path string, from *os.File, to io.Writer) (bool, error) {
		return sign.File(path, from, to, k, sign.Options{})
	}}, nil
}

// describe says what others may know about a certificate.
func describe(certificate *x509.Certificate) *result.Signer {
	fingerprint := sha256.Sum256(certificate.Raw)
	return &result.Signer{
		Fingerprint: hex.EncodeToString(fingerprint[:]), Subject: certificate.Subject.String(), NotAfter: certificate.NotAfter.UTC(),
	}
}

// readSigner reads a certificate, in PEM or DER; nil without a file.
func readSigner(file string) (*result.Signer, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKey, err)
	}
	certificate, err := sign.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKey, err)
	}
	return describe(certificate), nil
}

// maxSecret is what a Secret may hold.
const maxSecret = 1 << 20

func readFile(name string) (_ []byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(raw) > maxSecret {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxSecret)
	}
	return raw, nil
}
