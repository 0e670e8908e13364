// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"io/fs"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/plan"
)

// Host is what is asked of the node, as package host says it.
type Host interface {
	plan.Host
	observe.Host
	BootID() (string, error)
	Load(ctx context.Context, r host.LoadRequest) error
	Unload(ctx context.Context, r host.UnloadRequest) error
	Users(name string) ([]host.User, error)
	Dumps() ([]host.Dump, error)
}

// Store keeps the content of deliveries on the node. Package store has the real one.
type Store interface {
	// Import copies the output of a carrier pod into the store and returns the digest of its tree.
	// fs.ErrNotExist: nothing complete yet, ask again. *manifest.Failure: it will never do.
	// syscall.ENOSPC: there is no room now. An id that is held stays as it is.
	Import(ctx context.Context, id string, carrier types.UID) (digest string, err error)

	// Open verifies a held delivery and returns its tree, with lib/modules/<kernel> and firmware/,
	// of *os.Files. fs.ErrNotExist: it is not held, or was damaged and has been dropped.
	Open(id string) (fs.FS, error)

	// Held maps the ids of all held deliveries to the digests of their trees.
	Held() (map[string]string, error)

	// Retain drops every delivery but these, and content that none refers to any more.
	Retain(keep []string) error
}

// Firmware puts firmware where the kernel finds it. Owners are Modules, as namespace/name.
type Firmware interface {
	// Add makes an owner's files exactly these. *firmware.Conflict names one that is there with
	// other content; nothing has changed then.
	Add(owner string, files fs.FS) error

	// Remove takes an owner's files away, but for those that another owner needs.
	Remove(owner string) error

	// Retain removes the files of all owners but these.
	Retain(keep []string) error
}

// Blacklist keeps the host from loading modules by itself. Owners are Modules, as namespace/name.
type Blacklist interface {
	// Put makes an owner's modules exactly these.
	Put(owner string, modules []string) error

	// Retain removes what there is of all owners but these.
	Retain(keep []string) error
}

// Modprobe runs kmod's modprobe for orders with arguments for it.
type Modprobe interface {
	// Modprobe makes one call. Errors are those of host.Host's calls, or what the program said.
	Modprobe(ctx context.Context, r host.ModprobeRequest) error

	// ModprobeRunning tells whether a call that was left behind may still load something.
	ModprobeRunning() bool
}
