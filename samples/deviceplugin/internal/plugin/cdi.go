// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// description is the file that tells the container runtime what each device of
// the resource is in a container (Container Device Interface, CDI). It names the
// devices that are there now: a container that is to get another one does not
// start, and says why.
type description struct {
	options Options

	mu sync.Mutex
	// own is the file that this process wrote last; written: it has.
	own     file
	written bool
}

func (d *description) path() string {
	return filepath.Join(d.options.CDIDir, strings.ReplaceAll(d.options.Resource, "/", "-")+".json")
}

// keep makes the file say what these devices, by identifier, are. A file that
// says so is left alone, but not one that an earlier process left: that may
// remove its own file when it ends. Without a folder for it there is no file.
func (d *description) keep(devices map[string]string) error {
	if d.options.CDIDir == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(devices) == 0 { // CDI knows no description of nothing
		return d.delete()
	}
	text, err := d.text(devices)
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(d.path()); err == nil && d.written && bytes.Equal(now, text) {
		return nil
	}
	// The runtime must never see half a file, and looks at names that end in .json.
	half := d.path() + ".new"
	if err := os.WriteFile(half, text, 0o644); err != nil {
		return fmt.Errorf("describe the devices: %w", err)
	}
	if err := os.Rename(half, d.path()); err != nil {
		return fmt.Errorf("describe the devices: %w", err)
	}
	d.own, err = observe(d.path())
	d.written = err == nil
	return err
}

// text is the file's content. It names the oldest version of CDI that has all
// that is in it, so that old runtimes read it, too.
func (d *description) text(devices map[string]string) ([]byte, error) {
	spec := cdi.Spec{Kind: d.options.Resource}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		spec.Devices = append(spec.Devices, cdi.Device{
			Name: id,
			ContainerEdits: cdi.ContainerEdits{
				Env:         []string{variable(d.options.Resource, id) + "=" + devices[id]},
				DeviceNodes: []*cdi.DeviceNode{{Path: devices[id], Permissions: d.options.Permissions}},
			},
		})
	}
	version, err := cdi.MinimumRequiredVersion(&spec)
	if err != nil {
		return nil, fmt.Errorf("version of the description: %w", err)
	}
	spec.Version = version
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the description: %w", err)
	}
	return text, nil
}

// remove takes the file away, unless another process has put its own there: the
// next plugin of the node, which may start before this one ends.
func (d *description) remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.written || !d.own.current() {
		return nil
	}
	return d.delete()
}

func (d *description) delete() error {
	d.written = false
	if err := os.Remove(d.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the description: %w", err)
	}
	return nil
}
