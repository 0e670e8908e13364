// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"os"
	"syscall"
)

// useOwnHostsFile binds the file named by HostsFileVariable over /etc/hosts.
// The starter gave this process a mount namespace, so the host's file stays as
// it is.
func useOwnHostsFile() error {
	file, ok := os.LookupEnv(HostsFileVariable)
	if !ok {
		return nil
	}
	if err := syscall.Mount(file, "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s over /etc/hosts: %w", file, err)
	}
	return nil
}
