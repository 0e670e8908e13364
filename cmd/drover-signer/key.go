// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/drover-project/drover/internal/build/signer"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

// readKey makes a key of two Secrets. Keys in hardware or a service would come in here.
func readKey(key, certificate []byte) (*signer.Key, error) {
	k, err := sign.ParseKey(key, certificate)
	if err != nil {
		return nil, err
	}
	return &signer.Key{
		Signer: signer.Describe(k.Certificate()),
		Sign: func(path string, from *os.File, to io.Writer) (bool, error) {
			changed, err := sign.File(path, from, to, k, sign.Options{})
			if errors.Is(err, sign.ErrNotModule) {
				return false, fmt.Errorf("%w: %w", signer.ErrNotModule, err)
			}
			return changed, err
		},
	}, nil
}
