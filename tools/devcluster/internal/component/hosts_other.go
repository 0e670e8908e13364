// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package component

import (
	"errors"
	"os"
)

// useOwnHostsFile refuses: other systems have no mount namespaces.
func useOwnHostsFile() error {
	if _, ok := os.LookupEnv(HostsFileVariable); ok {
		return errors.New(HostsFileVariable + " works on Linux only")
	}
	return nil
}
