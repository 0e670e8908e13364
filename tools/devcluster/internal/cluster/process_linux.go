// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// unshareMounts gives the process a mount namespace of its own.
func unshareMounts(attr *syscall.SysProcAttr) { attr.Unshareflags |= syscall.CLONE_NEWNS }
