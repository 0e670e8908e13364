// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package fleet

import "syscall"

// spawner starts children.
var spawner = func() chan<- func() {
	work := make(chan func())
	go func() {
		for f := range work {
			f()
		}
	}()
	return work
}()

// attributes make a child deaf to Ctrl-C, which is ours to handle.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// ownMounts needs Linux, which is what the child will say.
func ownMounts() *syscall.SysProcAttr { return attributes() }
