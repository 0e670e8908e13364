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
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

// Describe says what others may know about a certificate.
func Describe(certificate *x509.Certificate) *result.Signer {
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
	return Describe(certificate), nil
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
