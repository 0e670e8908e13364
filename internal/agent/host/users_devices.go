// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// deviceNumber is what a device node stands for.
type deviceNumber struct {
	block        bool
	major, minor uint32
}

// belonging says how a device and the module belong together.
type belonging int

const (
	notOurs belonging = iota
	// perhapsOurs: names suggest it, or another driver's device is between it and one of ours.
	perhapsOurs
	// ours: it is below a device of the module's driver, and no other driver is in between.
	ours
)

// device is what is known about a device number.
type device struct {
	node string // its name in /dev, or empty
	is   belonging
}

// boundDevices are the devices of a module's drivers: links into /sys/devices in their directories.
func boundDevices(dir string) []User {
	var users []User
	for _, d := range names(dir) {
		bus, driver, ok := strings.Cut(d, ":")
		if !ok {
			continue
		}
		for _, n := range names(filepath.Join(dir, d)) {
			target, err := os.Readlink(filepath.Join(dir, d, n))
			if err == nil && strings.Contains(filepath.ToSlash(target), "/devices/") {
				users = append(users, User{Kind: UserDevice, Name: clean(driver), Device: clean(bus + " " + n)})
			}
		}
	}
	return users
}

// frameworks are the modules that make a class's devices for other modules. Without a parent
// device, sysfs does not tell for which.
var frameworks = map[string]string{
	"cec": "cec", "drm": "drm", "dvb": "dvb_core", "infiniband_verbs": "ib_uverbs", "rc": "rc_core", "sound": "snd",
	"uio": "uio", "video4linux": "videodev",
}

// owners tells which devices belong to one module.
type owners struct {
	sys, module string
	all         []string // modules that have a name in sysfs
	// drivers are the names under which device numbers are registered, by "c" or "b" and major.
	drivers map[string][]string
	known   map[deviceNumber]device
}

func newOwners(root, module string) *owners {
	o := &owners{
		sys: filepath.Join(root, "sys"), module: module, known: map[deviceNumber]device{},
		all: append(names(filepath.Join(root, "sys/module")), module),
	}
	if real, err := filepath.EvalSymlinks(o.sys); err == nil {
		o.sys = real
	}
	if data, err := os.ReadFile(filepath.Join(root, "proc/devices")); err == nil {
		o.drivers = parseDevices(string(data))
	}
	return o
}

func parseDevices(data string) map[string][]string {
	drivers, kind := map[string][]string{}, ""
	for line := range strings.Lines(data) {
		line = strings.TrimSpace(line)
		switch major, name, ok := strings.Cut(line, " "); {
		case line == "Character devices:":
			kind = "c"
		case line == "Block devices:":
			kind = "b"
		case ok:
			drivers[kind+major] = append(drivers[kind+major], name)
		}
	}
	return drivers
}

func (o *owners) of(n deviceNumber) device {
	d, ok := o.known[n]
	if !ok {
		d = o.find(n)
		o.known[n] = d
	}
	return d
}

func (o *owners) find(n deviceNumber) device {
	kind, dir := "c", "dev/char"
	if n.block {
		kind, dir = "b", "dev/block"
	}
	var d device
	var class string
	path, err := filepath.EvalSymlinks(filepath.Join(o.sys, dir, fmt.Sprintf("%d:%d", n.major, n.minor)))
	if err == nil {
		if name := deviceName(path); name != "" {
			d.node = clean("/dev/" + name)
		}
		class = linkBase(filepath.Join(path, "subsystem"))
		var driven bool
		if d.is, driven = o.above(path); d.is != notOurs {
			return d
		}
		if !driven && o.inFramework(class) {
			d.is = perhapsOurs
			return d
		}
	}
	candidates := append([]string{d.node, class}, o.drivers[kind+strconv.FormatUint(uint64(n.major), 10)]...)
	for _, name := range candidates {
		owner := o.namesake(name)
		if owner == "" {
			continue
		}
		if owner == o.module {
			d.is = perhapsOurs
		}
		break
	}
	return d
}

// above looks for drivers of the device and of its parents.
func (o *owners) above(path string) (is belonging, driven bool) {
	top := filepath.Join(o.sys, "devices") + string(filepath.Separator)
	for ; strings.HasPrefix(path, top); path = filepath.Dir(path) {
		if _, err := os.Lstat(filepath.Join(path, "driver")); err != nil {
			continue
		}
		if kmod.NormalizeName(linkBase(filepath.Join(path, "driver", "module"))) == o.module {
			if driven {
				return perhapsOurs, true
			}
			return ours, true
		}
		driven = true
	}
	return notOurs, driven
}

func (o *owners) inFramework(class string) bool {
	framework := frameworks[class]
	if framework == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(o.sys, "module", framework, "holders", o.module))
	return err == nil
}

// namesake is the module with the longest name that a device's name begins with, or empty.
func (o *owners) namesake(name string) string {
	name = kmod.NormalizeName(filepath.Base(name))
	best := ""
	for _, m := range o.all {
		rest, ok := strings.CutPrefix(name, m)
		if !ok || len(m) <= len(best) {
			continue
		}
		if rest == "" || !unicode.IsLetter(rune(rest[0])) {
			best = m
		}
	}
	return best
}

// deviceName is the name below /dev that the kernel gave a device of sysfs, or empty.
func deviceName(path string) string {
	data, err := os.ReadFile(filepath.Join(path, "uevent"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return name
		}
	}
	return ""
}

// linkBase is the last element of what a link leads to, or empty.
func linkBase(link string) string {
	target, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
