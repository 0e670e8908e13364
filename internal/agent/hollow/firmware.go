// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// searchPath is a fake kernel's firmware_class.path: a file, so that who looks at the node from
// outside can read it.
type searchPath string

// FirmwarePath is where the kernel looks first.
func (s searchPath) FirmwarePath() (string, error) {
	value, err := os.ReadFile(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("hollow: firmware search path: %w", err)
	}
	return string(value), nil
}

// SetFirmwarePath changes it.
func (s searchPath) SetFirmwarePath(value string) error {
	if err := os.WriteFile(string(s), []byte(value), 0o600); err != nil {
		return fmt.Errorf("hollow: set the firmware search path: %w", err)
	}
	return nil
}

func (n *node) searchPath() searchPath {
	return searchPath(filepath.Join(n.dir, "firmware_class.path"))
}

// openFirmware is the real stage, below the node's own directory.
func (n *node) openFirmware() (*firmware.Stage, error) {
	boot, err := n.kernel.BootID()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	o := firmware.Options{
		HostRoot: filepath.Join(n.dir, "root"), StateDir: filepath.Join(n.dir, "firmware"), BootID: boot, SearchPath: n.searchPath(),
		Sync: statefile.NoSync,
	}
	for _, dir := range []string{o.HostRoot, o.StateDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	stage, err := firmware.Open(o)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	return stage, nil
}
