// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// scan returns the paths, as the host sees them, of the device nodes that match
// glob. Anything else that matches is left out: a regular file in /dev is an
// accident, and the runtime would refuse it.
func scan(hostRoot, glob string) ([]string, error) {
	matches, err := filepath.Glob(filepath.Join(hostRoot, glob))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", glob, err)
	}
	var found []string
	for _, match := range matches {
		info, err := os.Stat(match)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the folder was read
		}
		if err != nil {
			return nil, fmt.Errorf("look at a device: %w", err)
		}
		if info.Mode()&fs.ModeDevice == 0 {
			continue
		}
		path, err := filepath.Rel(hostRoot, match)
		if err != nil {
			return nil, fmt.Errorf("path of %s on the host: %w", match, err)
		}
		found = append(found, "/"+path)
	}
	return found, nil
}

// device is one device node that was there at some time.
type device struct {
	path    string
	present bool
}

// inventory holds what is known of the devices. A device that vanishes stays in
// it as unhealthy: a pod may still hold it, and the node's capacity then shows
// that something is missing.
type inventory struct {
	mu      sync.Mutex
	devices map[string]device
	changed chan struct{}
}

func newInventory() *inventory {
	return &inventory{devices: map[string]device{}, changed: make(chan struct{})}
}

// update takes over what a scan found and says whether anything is different.
func (i *inventory) update(paths []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := maps.Clone(i.devices)
	for id, known := range next {
		next[id] = device{path: known.path}
	}
	for _, path := range paths {
		next[deviceID(path)] = device{path: path, present: true}
	}
	if maps.Equal(next, i.devices) {
		return false
	}
	i.devices = next
	close(i.changed)
	i.changed = make(chan struct{})
	return true
}

// list returns all devices in a fixed order, and a channel that is closed when
// the list is no longer current.
func (i *inventory) list() ([]*v1beta1.Device, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []*v1beta1.Device
	for _, id := range slices.Sorted(maps.Keys(i.devices)) {
		health := v1beta1.Unhealthy
		if i.devices[id].present {
			health = v1beta1.Healthy
		}
		all = append(all, &v1beta1.Device{ID: id, Health: health})
	}
	return all, i.changed
}

// present returns the device nodes that are there now, by identifier.
func (i *inventory) present() map[string]string {
	i.mu.Lock()
	defer i.mu.Unlock()
	paths := map[string]string{}
	for id, known := range i.devices {
		if known.present {
			paths[id] = known.path
		}
	}
	return paths
}

// path returns the device node of a device that is there now.
func (i *inventory) path(id string) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.devices[id]
	return known.path, known.present
}

// deviceID makes a name of a path that the kubelet, which puts it into its
// checkpoint and its metrics, and CDI both take: /dev/snd/a is snd-a.
func deviceID(path string) string {
	id := strings.Map(func(r rune) rune {
		if isAlphanumeric(r) || strings.ContainsRune("_.-", r) {
			return r
		}
		return '-'
	}, strings.TrimPrefix(path, "/dev/"))
	return strings.Trim(id, "_.-")
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// variable is the environment variable that holds a device's path in a
// container: the resource's name without its domain, and what tells the device
// from the others. Of example.com/ptemplate, the device ptemplate-0 is
// ptemplate_0.
func variable(resource, id string) string {
	_, class, _ := strings.Cut(resource, "/")
	class, id = identifier(class), identifier(id)
	rest := strings.TrimLeft(strings.TrimPrefix(id, class), "_")
	if rest == "" {
		return class
	}
	return class + "_" + rest
}

// identifier has "_" for every character that a variable's name cannot have.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if isAlphanumeric(r) {
			return r
		}
		return '_'
	}, name)
}
