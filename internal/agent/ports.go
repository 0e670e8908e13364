// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"io/fs"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/host"
)

// Store keeps the content of deliveries on the node. Package store has the real one.
type Store interface {
	// Import copies the output of the carrier pod with that UID into the store under the delivery id and returns the
	// digest of the imported tree. An error that wraps fs.ErrNotExist means: nothing complete there yet, ask again;
	// one that wraps *manifest.Failure says why the carrier's output will never do. Importing an id that is held
	// already changes nothing. One that wraps syscall.ENOSPC means: there is no room for it now.
	Import(ctx context.Context, id string, carrier types.UID) (digest string, err error)

	// Open verifies a held delivery against its digest and returns its tree, whose root holds lib/modules/<kernel>
	// (and firmware/). Files are *os.File. fs.ErrNotExist: the id is not held, or was damaged and has been dropped.
	Open(id string) (fs.FS, error)

	// Held maps the ids of all held deliveries to the digests of their trees.
	Held() (map[string]string, error)

	// Retain drops every delivery whose id is not in keep, and content that no delivery refers to any more.
	Retain(keep []string) error
}

// Firmware puts firmware files where the kernel finds them. Package firmware has the real one. Owners are Modules, as namespace/name.
type Firmware interface {
	// Add makes the files of an owner exactly these, by their paths below the root of files. An error that wraps
	// *firmware.Conflict names a file that is there already with other content; nothing has changed then.
	Add(owner string, files fs.FS) error

	// Remove takes an owner's files away, but for those that another owner needs.
	Remove(owner string) error

	// Retain removes the files of all owners but these.
	Retain(keep []string) error
}

// Blacklist keeps the host from loading modules by itself. Package blacklist has the real one. Owners are Modules, as namespace/name.
type Blacklist interface {
	// Put makes an owner's modules exactly these.
	Put(owner string, modules []string) error

	// Retain removes what there is of all owners but these.
	Retain(keep []string) error
}

// Modprobe runs kmod's modprobe for orders with arguments for it. The real host and the fake one have it.
type Modprobe interface {
	// Modprobe makes one call. Errors are as those of host.Host's Load and Unload, or what the program said.
	Modprobe(ctx context.Context, r host.ModprobeRequest) error

	// ModprobeRunning tells whether a call that was left behind has not ended: it may still load what it has not reached yet.
	ModprobeRunning() bool
}
