// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command guest is the first and only process of a machine whose power is cut (test/vm/powercut).
// On a disk that outlives the cuts, it looks at what the agent's files are after the last one, has
// the agent load without an API server, and then orders one build of a kernel module after the
// other until the power goes. The agent is the real one, with its store, journal, crash fuse and
// firmware; so are kernel and file system.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/test/vm/powercut/say"
)

// disk is where the disk is mounted.
const disk = "/disk"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "kcall" {
		if err := kcall.Run(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	say.Line(os.Stdout, say.Failed, run(context.Background()).Error())
	select {} // the power is cut; the first process must not end
}

// run ends with an error only: orders are given until the power is cut.
func run(ctx context.Context) error {
	if err := mounts(); err != nil {
		return err
	}
	serial, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("serial port: %w", err)
	}
	os.Stdout = serial
	o, err := readOptions()
	if err != nil {
		return err
	}
	if err := loadAll("/boot"); err != nil {
		return err
	}
	if err := os.MkdirAll(disk, 0o700); err != nil {
		return err
	}
	if err := mountDisk(ctx, o.FileSystem); err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.Background())
	say.Line(serial, say.Mounted)
	n, err := newNode(o)
	if err != nil {
		return err
	}
	found, err := n.judge(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	say.Line(serial, say.Judged, string(data))
	return n.orders(ctx)
}

func mounts() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	return nil
}

// readOptions reads what the host put on the kernel's command line.
func readOptions() (say.Options, error) {
	var o say.Options
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return o, err
	}
	for word := range strings.FieldsSeq(string(line)) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "powercut.fs":
			o.FileSystem = value
		case "powercut.nosync":
			o.NoSync = value == "true"
		case "powercut.worked":
			o.Worked, err = strconv.Atoi(value)
		case "powercut.issued":
			o.Issued, err = strconv.Atoi(value)
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", word, err)
		}
	}
	return o, nil
}

// loadAll loads a directory's modules in the order of their names: what the disk takes.
func loadAll(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := unix.InitModule(content, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// mountDisk mounts the disk, with the file system's own recovery and its defaults. The device may
// come a moment after its driver.
func mountDisk(ctx context.Context, fileSystem string) error {
	const limit = time.Minute
	var mounted error
	err := wait.PollUntilContextTimeout(ctx, lookEvery, limit, true, func(context.Context) (bool, error) {
		mounted = unix.Mount("/dev/vda", disk, fileSystem, 0, "")
		return !errors.Is(mounted, unix.ENOENT) && !errors.Is(mounted, unix.ENXIO), nil
	})
	if err := cmp.Or(mounted, err); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}
