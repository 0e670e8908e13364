// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"path"
	"slices"
	"strings"
)

// SearchPath is /sys/module/firmware_class/parameters/path, where the kernel looks for firmware
// before it looks in its own places (/lib/firmware and below), in the mount namespace of process 1.
type SearchPath interface {
	// FirmwarePath returns the value, which may end in newlines; empty: nobody has set one.
	FirmwarePath() (string, error)
	// SetFirmwarePath replaces the value. It adds no newline, which older kernels take as part of the
	// name, and writes an empty value as a NUL byte, as an empty write does not reach the kernel.
	SetFirmwarePath(string) error
}

// neutral are the values that no administrator chose: the defaults of upstream's releases.
var neutral = []string{"/var/lib/firmware", "/lib/firmware"}

// Wrote is what we wrote into the kernel's search path.
type Wrote struct {
	Boot     string `json:"boot"`     // the boot in which it was written; a reboot undoes it
	Value    string `json:"value"`    // what we wrote
	Previous string `json:"previous"` // the value we found, to be restored
}

// Choice says where firmware goes and what the kernel is told.
type Choice struct {
	Dir   string // to stage into, a path of the host
	Set   bool   // Dir must be written into the search path
	Wrote *Wrote // what to remember; nil: the search path is not ours
}

// Choose decides by the current value, our directory, and what we wrote before (nil: nothing). A
// value that an administrator chose stays, and firmware goes there.
func Choose(current, ours, boot string, wrote *Wrote) Choice {
	current = trim(current)
	if wrote != nil && (wrote.Boot != boot || wrote.Value != current) {
		wrote = nil // undone by a reboot, or overwritten by somebody
	}
	switch {
	case current == ours:
		return Choice{Dir: ours, Wrote: wrote}
	case wrote != nil: // our directory was another one when we wrote it
		return Choice{Dir: ours, Set: true, Wrote: &Wrote{Boot: boot, Value: ours, Previous: wrote.Previous}}
	case current == "", slices.Contains(neutral, current):
		return Choice{Dir: ours, Set: true, Wrote: &Wrote{Boot: boot, Value: ours, Previous: current}}
	default:
		return Choice{Dir: current}
	}
}

// trim removes what the kernel adds to the value, and a slash at its end.
func trim(value string) string {
	value = strings.TrimRight(value, "\n\x00")
	if value == "" {
		return ""
	}
	return path.Clean(value)
}
