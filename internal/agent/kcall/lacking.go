// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"errors"
	"slices"
	"syscall"
)

// lacks are errors of a node that is short of something, or whose disk is at fault.
var lacks = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN,
}

// Lacking reports whether something failed for want of what the node should have, such as room on
// its disk. That says nothing about the module in question.
func Lacking(err error) bool {
	return slices.ContainsFunc(lacks, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
