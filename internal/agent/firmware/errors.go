// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"fmt"
	"path"
)

// Conflict says that a firmware file cannot be staged because its name is taken by other content.
type Conflict struct {
	// Dir is the directory on the host that firmware is staged in.
	Dir string
	// Path relative to Dir.
	Path string
	// Owner who has staged it. Empty: the file is the host's own, or was changed since we staged it.
	Owner string
	// Found says what is there instead, for people.
	Found string
}

// Error names the file, whose it is, and what to do.
func (c *Conflict) Error() string {
	if c.Owner != "" {
		return fmt.Sprintf("firmware file %s is staged with other content for %s; both must bring the same file, or use other names",
			c.Path, c.Owner)
	}
	return fmt.Sprintf("firmware file %s on the host %s and is left as it is; remove it there, or leave it out of the image",
		path.Join(c.Dir, c.Path), c.Found)
}

// DirError says that the directory which the kernel searches for firmware cannot be used.
type DirError struct {
	// Dir on the host.
	Dir string
	// Foreign is true when Dir is an administrator's choice, not our setting.
	Foreign bool
	// Err is what went wrong.
	Err error
}

// Error says what to do about it.
func (e *DirError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("somebody set the kernel's firmware_class.path to %s, and the agent cannot stage firmware there: %v; "+
			"make it the agent's firmware directory, or clear the parameter", e.Dir, e.Err)
	}
	return fmt.Sprintf("the agent cannot stage firmware in %s on the host: %v; mount it writable, or set another firmware directory",
		e.Dir, e.Err)
}

// Unwrap returns what went wrong.
func (e *DirError) Unwrap() error { return e.Err }
