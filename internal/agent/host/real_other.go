// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import "errors"

// New says that only Linux has kernel modules.
func New(Options) (Host, error) {
	return nil, errors.New("host: nodes run Linux; use hollow nodes here")
}
