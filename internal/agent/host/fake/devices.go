// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"path"
	"strings"

	"github.com/drover-project/drover/internal/agent/host"
)

// Put makes a path of the host hold a value: a device node below /dev, where the value does not
// matter, or a file below /sys. It stays until it is taken or the node reboots. Whoever waits for
// changes is not told.
func (h *Host) Put(name, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[name] = value
}

// Take removes what Put put there.
func (h *Host) Take(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.files, name)
}

// Probe implements host.Host.
func (h *Host) Probe(p host.Probe) (ok bool, found string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, value := range h.files {
		if match, err := path.Match(p.DeviceNode+p.Sysfs, name); err != nil || !match {
			continue
		}
		if p.Value == "" || p.Value == strings.TrimSpace(value) {
			return true, ""
		}
		found = max(found, name+" holds "+value)
	}
	return false, found
}
