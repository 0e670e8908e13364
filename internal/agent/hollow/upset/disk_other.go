// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package upset

import (
	"errors"
	"fmt"
)

// Disk needs Linux.
type Disk struct{}

// Mount needs Linux.
func Mount(string, int64) (*Disk, error) {
	return nil, fmt.Errorf("disks of their own need Linux: %w", errors.ErrUnsupported)
}

// Fill needs Linux.
func (d *Disk) Fill() error { return errors.ErrUnsupported }

// Empty needs Linux.
func (d *Disk) Empty() error { return errors.ErrUnsupported }

// Unmount needs Linux.
func (d *Disk) Unmount() error { return errors.ErrUnsupported }
