// SPDX-License-Identifier: Apache-2.0

// Package bake puts the content of kernel module images into the store of a node's image, before
// the node first boots. Carriers' and agents' own code does it, so that the store holds what an
// agent would have imported there.
package bake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/shared/imagefs"
)

// StateDir is where the agent's DaemonSet keeps its state on a node, unless the administrator
// changed it.
const StateDir = "/var/lib/drover"

// Root is the root file system of a node's image. One process works on it at a time.
type Root struct {
	// Store is the folder of the agent's store in it.
	Store string

	root  *os.Root
	store *store.Store
	lock  *boot.Lock
	work  string // for images and what is exported of them
}

// Open prepares the agent's store below stateDir in the folder root. No link leads out of root.
func Open(ctx context.Context, root, stateDir string) (r *Root, err error) {
	r = &Root{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.root, err = os.OpenRoot(root); err != nil {
		return r, fmt.Errorf("open the node image's root: %w", err)
	}
	state := strings.TrimPrefix(path.Clean("/"+stateDir), "/")
	if state == "" {
		return r, fmt.Errorf("the state directory %q is the root itself", stateDir)
	}
	if err := r.makeState(state); err != nil {
		return r, fmt.Errorf("make %s in the node image %s: %w", state, root, err)
	}
	dir := filepath.Join(root, filepath.FromSlash(state))
	if err := r.alone(state, dir); err != nil {
		return r, err
	}
	if r.work, err = os.MkdirTemp("", "drover-bake-"); err != nil {
		return r, fmt.Errorf("make a folder to work in: %w", err)
	}
	r.Store = filepath.Join(dir, "store")
	if r.store, err = store.New(ctx, r.Store, store.Options{PodsDir: r.work, Baked: true}); err != nil {
		return r, err
	}
	for at := path.Join(state, "store"); ; at = path.Dir(at) {
		if err := statefile.Sync(nil).Dir(filepath.Join(root, at)); err != nil {
			return r, fmt.Errorf("sync the node image: %w", err)
		}
		if at == "." {
			return r, nil
		}
	}
}

// makeState makes the state directory as a kubelet does, whatever the umask.
func (r *Root) makeState(state string) error {
	switch info, err := r.root.Stat(state); {
	case err == nil && !info.IsDir():
		return errors.New("it is there and not a directory")
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err //nolint:wrapcheck // Open does
	}
	made := ""
	for at := state; at != "."; at = path.Dir(at) {
		if _, err := r.root.Stat(at); err == nil {
			break
		}
		made = at
	}
	if err := r.root.MkdirAll(state, 0o755); err != nil {
		return err //nolint:wrapcheck // Open does
	}
	for at := state; ; at = path.Dir(at) {
		if err := r.root.Chmod(at, 0o755); err != nil {
			return err //nolint:wrapcheck // Open does
		}
		if at == made {
			return nil
		}
	}
}

// alone keeps an agent that works in the state directory, or begins to, out of it.
func (r *Root) alone(state, dir string) (err error) {
	if _, err := r.root.Stat(path.Join(state, boot.LockFile)); errors.Is(err, fs.ErrNotExist) {
		return nil // no agent ever ran here
	}
	if r.lock, err = boot.TryTake(dir, "drover bake"); err == nil && r.lock == nil {
		err = fmt.Errorf("an agent works in %s: bake into a node's image, not into a node", dir)
	}
	return err
}

// Kernels are the versions of the kernels in the image.
func (r *Root) Kernels() ([]string, error) {
	var found []string
	image := imagefs.New(r.root.FS())
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		entries, err := image.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the node image's kernels: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				found = append(found, e.Name())
			}
		}
		if len(found) > 0 {
			break // /lib is often a link to /usr/lib
		}
	}
	return found, nil
}

// Close removes what was needed only for the work.
func (r *Root) Close() error {
	var all []error
	if r.lock != nil {
		all = append(all, r.lock.Release())
	}
	if r.work != "" {
		all = append(all, os.RemoveAll(r.work))
	}
	if r.root != nil {
		all = append(all, r.root.Close())
	}
	return errors.Join(all...)
}
