// SPDX-License-Identifier: Apache-2.0

package upset

import (
	"fmt"
	"os"
	"syscall"
)

// page is the unit of a tmpfs.
const page = 4096

// Disk is a small file system of its own, in memory.
type Disk struct {
	path string
	size int64
}

// Mount makes a disk of so many bytes, or HalfOfMemory, at a path. Whoever starts the process gives
// it a mount namespace of its own: with the process, the disks end.
func Mount(path string, size int64) (*Disk, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make a disk: %w", err)
	}
	d := &Disk{path: path, size: size}
	if err := syscall.Mount("drover-hollow", path, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, d.options(size)); err != nil {
		return nil, fmt.Errorf("mount a disk at %s: %w", path, err)
	}
	return d, nil
}

// Fill leaves no room: from now on, who writes gets ENOSPC.
func (d *Disk) Fill() error {
	var on syscall.Statfs_t
	if err := syscall.Statfs(d.path, &on); err != nil {
		return fmt.Errorf("fill the disk %s: %w", d.path, err)
	}
	used := int64(on.Blocks-on.Bfree) * on.Bsize //nolint:gosec // no disk is that large
	return d.resize(max(used, page))
}

// Empty ends Fill.
func (d *Disk) Empty() error { return d.resize(d.size) }

func (d *Disk) resize(size int64) error {
	if err := syscall.Mount("", d.path, "", syscall.MS_REMOUNT|syscall.MS_NOSUID|syscall.MS_NODEV, d.options(size)); err != nil {
		return fmt.Errorf("give the disk %s %d bytes: %w", d.path, size, err)
	}
	return nil
}

// options of a tmpfs, see tmpfs(5).
func (d *Disk) options(size int64) string {
	if size == HalfOfMemory {
		return "mode=700,size=50%"
	}
	return fmt.Sprintf("mode=700,size=%d", size)
}

// Unmount ends the disk.
func (d *Disk) Unmount() error {
	if err := syscall.Unmount(d.path, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the disk %s: %w", d.path, err)
	}
	return nil
}
