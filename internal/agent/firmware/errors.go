// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"fmt"
	"path"
)

// Conflict says that a firmware file cannot be staged because another has its name.
type Conflict struct {
	// Dir is the directory on the host that firmware is staged in.
	Dir  string
	Path string
	// Owner for whom it is staged. Empty: the file is the host's, or was changed since it was staged.
	Owner string
	Found string
}

func (c *Conflict) Error() string {
	if c.Owner != "" {
		return fmt.Sprintf("firmware file %s is staged for %s with other content; bring the same file for both, or rename one of them",
			c.Path, c.Owner)
	}
	return fmt.Sprintf("firmware file %s on the host %s; remove it there, or leave it out of the image", path.Join(c.Dir, c.Path), c.Found)
}

// DirError says that the directory in which the kernel looks for firmware cannot be used.
type DirError struct {
	Dir string
	// Foreign is true when Dir is an administrator's choice, not our setting.
	Foreign bool
	Err     error
}

func (e *DirError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("the agent cannot stage firmware in %s, which somebody set as the kernel's firmware_class.path: %v; "+
			"set it to the agent's firmware directory, or clear it", e.Dir, e.Err)
	}
	return fmt.Sprintf("the agent cannot stage firmware in %s on the host: %v; mount it writable, or set another firmware directory",
		e.Dir, e.Err)
}

func (e *DirError) Unwrap() error { return e.Err }
