// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// Probe is a sign that a device can be used: a device node or a file in sysfs. Paths are the
// host's. They may be patterns, of which one match is enough.
type Probe struct {
	DeviceNode   string // below /dev, must be a device
	Sysfs, Value string // a file below /sys that must contain Value; empty: it must exist
}

func (p Probe) String() string {
	switch {
	case p.DeviceNode != "":
		return "device node " + p.DeviceNode
	case p.Value != "":
		return fmt.Sprintf("%s with the value %q", p.Sysfs, p.Value)
	}
	return p.Sysfs
}

const (
	maxMatches   = 64      // of a pattern
	maxAttribute = 4 << 10 // of a file in sysfs, bytes
	// attributeDeadline is how long a driver may take to answer a read.
	attributeDeadline = time.Second
)

// Prober looks for probes.
type Prober struct {
	Root string // has the host's dev
	Sys  string // where the host's sysfs is mounted

	mu    sync.Mutex
	stuck map[string]bool // files whose driver has not answered
}

// Look implements Host's Probe.
func (p *Prober) Look(probe Probe) (ok bool, found string) {
	if probe.DeviceNode != "" {
		return p.device(probe.DeviceNode)
	}
	return p.attribute(probe.Sysfs, probe.Value)
}

// device looks in the host's /dev. If a security module denies that, the kernel's own list of
// devices has to do, which lacks nodes that were made by hand.
func (p *Prober) device(pattern string) (bool, string) {
	ok, found, err := p.deviceNode(pattern)
	if err == nil {
		return ok, found
	}
	ok, listErr := p.announced(strings.TrimPrefix(pattern, "/dev/"))
	if listErr != nil {
		return false, fmt.Sprintf("neither the host's /dev nor the kernel's list of devices can be read: %v; %v", err, listErr)
	}
	return ok, ""
}

// deviceNode returns an error when it cannot see.
func (p *Prober) deviceNode(pattern string) (ok bool, found string, err error) {
	if _, err := os.Stat(filepath.Join(p.Root, "dev")); err != nil {
		return false, "", err //nolint:wrapcheck // it names the folder
	}
	if _, err := os.Lstat(filepath.Join(p.Root, pattern)); errors.Is(err, fs.ErrPermission) { // Glob would say nothing of it
		return false, "", err //nolint:wrapcheck // it names the file
	}
	matches, err := filepath.Glob(filepath.Join(p.Root, pattern))
	if err != nil {
		return false, err.Error(), nil
	}
	for _, m := range matches[:min(len(matches), maxMatches)] {
		switch device, err := p.isDevice(m); {
		case errors.Is(err, fs.ErrPermission):
			return false, "", err
		case device:
			return true, "", nil
		}
		found = strings.TrimPrefix(m, p.Root) + " is not a device"
	}
	return false, found, nil
}

// isDevice follows links as the host would.
func (p *Prober) isDevice(name string) (bool, error) {
	info, err := os.Lstat(follow(p.Root, name))
	if err != nil {
		return false, err //nolint:wrapcheck // it names the file
	}
	return info.Mode()&fs.ModeDevice != 0, nil
}

// follow returns what a link leads to on the host, whose root is mounted at root. It gives up on
// links that lead in a circle.
func follow(root, name string) string {
	const most = 40 // links in a row, as in the kernel
	for range most {
		target, err := os.Readlink(name)
		switch {
		case err != nil:
			return name
		case filepath.IsAbs(target):
			name = filepath.Join(root, target)
		default:
			name = filepath.Join(filepath.Dir(name), target)
		}
	}
	return name
}

// announced looks for a name that the kernel gave a device node.
func (p *Prober) announced(pattern string) (bool, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return false, fmt.Errorf("%s: %w", pattern, err)
	}
	for _, kind := range []string{"char", "block"} {
		dir := filepath.Join(p.Sys, "dev", kind)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return false, fmt.Errorf("list devices: %w", err)
		}
		for _, e := range entries {
			name := deviceName(filepath.Join(dir, e.Name()))
			if match, _ := filepath.Match(pattern, name); name != "" && match { // the pattern was tried above
				return true, nil
			}
		}
	}
	return false, nil
}

// attribute reads only what everybody may read: the rest may be secret, or act when read.
func (p *Prober) attribute(pattern, value string) (bool, string) {
	matches, err := filepath.Glob(filepath.Join(p.Sys, strings.TrimPrefix(pattern, "/sys")))
	switch {
	case err != nil:
		return false, err.Error()
	case value == "" || len(matches) == 0:
		return len(matches) > 0, ""
	}
	found := ""
	for _, m := range matches[:min(len(matches), maxMatches)] {
		got, err := p.read(m)
		name := "/sys" + strings.TrimPrefix(m, p.Sys)
		switch {
		case err != nil:
			found = fmt.Sprintf("%s: %v", name, err)
		case got == value:
			return true, ""
		default:
			found = fmt.Sprintf("%s holds %q", name, clip(got))
		}
	}
	return false, found
}

func (p *Prober) read(name string) (string, error) { return p.within(name, readAttribute) }

// errSilent is the error of a file whose driver hangs.
var errSilent = fmt.Errorf("its driver does not answer within %s", attributeDeadline)

// within reads a file below /sys by read, which may never return: to read is to call the driver. As
// long as one read of the file hangs, no other is begun.
func (p *Prober) within(name string, read func(name string) (string, error)) (string, error) {
	p.mu.Lock()
	if p.stuck == nil {
		p.stuck = map[string]bool{}
	}
	stuck := p.stuck[name]
	p.stuck[name] = true
	p.mu.Unlock()
	if stuck {
		return "", errSilent
	}
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := read(name)
		p.mu.Lock()
		delete(p.stuck, name)
		p.mu.Unlock()
		done <- answer{text, err}
	}()
	select {
	case a := <-done:
		return a.text, a.err
	case <-time.After(attributeDeadline):
		return "", errSilent
	}
}

func readAttribute(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return "", errors.New("is not a file")
	case !everyoneReads(info):
		return "", errors.New("is not read: not everybody may read it")
	}
	file, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(file, maxAttribute))
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// AwaitReady returns when the module is live or built in and all probes find what they look for.
func (p *Prober) AwaitReady(ctx context.Context, module string, probes []Probe) error {
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		live, err := isLive(p.Sys, module)
		for i := 0; live && i < len(probes); i++ {
			live, _ = p.Look(probes[i])
		}
		return live, err
	})
	if err != nil {
		return fmt.Errorf("wait for module %s: %w", module, err)
	}
	return nil
}

// isLive tells whether the module is live or built in, seen through sys.
func isLive(sys, name string) (bool, error) {
	dir := filepath.Join(sys, "module", kmod.NormalizeName(name))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for module %s: %w", name, err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "initstate"))
	if errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) { // built in, or going away at this moment
		_, err := os.Stat(filepath.Join(dir, "parameters"))
		if err != nil {
			_, err = os.Stat(filepath.Join(dir, "uevent"))
		}
		return err == nil, nil
	}
	if err != nil {
		return false, fmt.Errorf("state of module %s: %w", name, err)
	}
	return strings.TrimSpace(string(state)) == string(StateLive), nil
}
