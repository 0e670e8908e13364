// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cluster

import "syscall"

// unshareMounts does nothing: Options.complete refuses what needs it here.
func unshareMounts(*syscall.SysProcAttr) {}
