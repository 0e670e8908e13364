// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// pathAttribute of a published device is its device node on the host.
const pathAttribute = "path"

// scan returns the paths, as the host sees them, of the device nodes that match
// glob, in order.
func scan(hostRoot, glob string) ([]string, error) {
	matches, err := filepath.Glob(filepath.Join(hostRoot, glob))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", glob, err)
	}
	var found []string
	for _, match := range matches {
		path, err := filepath.Rel(hostRoot, match)
		if err != nil {
			return nil, fmt.Errorf("path of %s on the host: %w", match, err)
		}
		switch present, err := isDevice(hostRoot, "/"+path); {
		case err != nil:
			return nil, err
		case present:
			found = append(found, "/"+path)
		}
	}
	return found, nil
}

// isDevice tells whether there is a device node at a path of the host.
func isDevice(hostRoot, path string) (bool, error) {
	info, err := os.Stat(filepath.Join(hostRoot, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at a device: %w", err)
	}
	return info.Mode()&fs.ModeDevice != 0, nil
}

// resources are one pool of all devices, named like the node.
func resources(node string, paths []string) resourceslice.DriverResources {
	var devices []resourcev1.Device
	for _, path := range paths {
		devices = append(devices, resourcev1.Device{
			Name:       deviceName(path),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{pathAttribute: {StringValue: new(path)}},
		})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}
}

// deviceName makes a DNS label from a path: /dev/drover_sample0 is drover-sample0.
func deviceName(path string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(strings.TrimPrefix(path, "/dev/")))
	return strings.Trim(label, "-")
}
