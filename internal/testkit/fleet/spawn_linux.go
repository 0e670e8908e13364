// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"runtime"
	"syscall"
)

// maxRSSUnitsPerMiB: Linux gives kilobytes.
const maxRSSUnitsPerMiB = 1024

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
