// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// specVersion is the version of CDI that the files keep to: the oldest that has
// all they need, so that old runtimes read them, too.
const specVersion = "0.5.0"

// class is the part of a CDI device's name between the driver and the device.
const class = "device"

// specs are files that tell the container runtime what to give to containers:
// one per prepared claim. They are all that the driver remembers, and they are
// in a folder that does not outlive a boot, as what they describe.
type specs struct {
	dir    string
	driver string
}

func (s specs) prefix() string { return s.driver + "-claim-" }

func (s specs) file(claim types.UID) string {
	return filepath.Join(s.dir, s.prefix()+string(claim)+".json")
}

// id names a claim's device for the container runtime. Names are never used
// again, so that no cache can be wrong.
func (s specs) id(claim types.UID, device string) string {
	return s.driver + "/" + class + "=" + name(claim, device)
}

func name(claim types.UID, device string) string { return string(claim) + "-" + device }

// write describes a claim's devices, by name, with their device nodes. A device
// that another claim holds is refused: the scheduler sees to that, and this is
// the last place where it can be noticed.
func (s specs) write(claim types.UID, devices map[string]string) error {
	if err := s.free(claim, devices); err != nil {
		return err
	}
	spec := cdi.Spec{Version: specVersion, Kind: s.driver + "/" + class}
	for _, device := range slices.Sorted(maps.Keys(devices)) {
		spec.Devices = append(spec.Devices, cdi.Device{
			Name: name(claim, device),
			ContainerEdits: cdi.ContainerEdits{
				Env:         []string{variable(device) + "=" + devices[device]},
				DeviceNodes: []*cdi.DeviceNode{{Path: devices[device], Permissions: "r"}},
			},
		})
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the description of a claim: %w", err)
	}
	// The runtime must never see half a file, and looks at names that end in .json.
	half := s.file(claim) + ".new"
	if err := os.WriteFile(half, text, 0o644); err != nil {
		return fmt.Errorf("describe a claim: %w", err)
	}
	if err := os.Rename(half, s.file(claim)); err != nil {
		return fmt.Errorf("describe a claim: %w", err)
	}
	return nil
}

// free tells whether no other claim holds any of the devices.
func (s specs) free(claim types.UID, devices map[string]string) error {
	files, err := filepath.Glob(filepath.Join(s.dir, s.prefix()+"*.json"))
	if err != nil {
		return fmt.Errorf("look for prepared claims: %w", err)
	}
	for _, file := range files {
		if file == s.file(claim) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a prepared claim: %w", err)
		}
		var spec cdi.Spec
		if err := json.Unmarshal(text, &spec); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		for i := range spec.Devices {
			for _, node := range spec.Devices[i].ContainerEdits.DeviceNodes {
				for device, path := range devices {
					if node.Path == path {
						return fmt.Errorf("device %s is held by the claim of %s", device, filepath.Base(file))
					}
				}
			}
		}
	}
	return nil
}

// remove forgets a claim. One that was never prepared is no error.
func (s specs) remove(claim types.UID) error {
	if err := os.Remove(s.file(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget a claim: %w", err)
	}
	return nil
}

// variable is the environment variable that holds a device's path: that of
// drover-sample0 is DEVICE_DROVER_SAMPLE0.
func variable(device string) string {
	return "DEVICE_" + strings.ToUpper(strings.ReplaceAll(device, "-", "_"))
}
