// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"runtime"
	"syscall"
)

// spawner starts children from one thread that never ends: the death signal is sent when the
// starting *thread* ends.
var spawner = func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
}()

// attributes make a child deaf to Ctrl-C, which is ours to handle, and end it when this process
// ends, however that happens.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// ownMounts are attributes of a child that mounts what nobody else sees, and what ends with it.
func ownMounts() *syscall.SysProcAttr {
	a := attributes()
	a.Unshareflags = syscall.CLONE_NEWNS
	if uid := os.Geteuid(); uid != 0 {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}
