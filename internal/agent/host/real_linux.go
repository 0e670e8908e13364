// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Real is the node this process runs on.
type Real struct {
	root     string
	release  string
	caller   *kcall.Caller
	modprobe *modprobe.Runner
	hints    *hints
	finder   *userFinder
	prober   *Prober
}

var _ Host = (*Real)(nil)

// New looks at the host below root.
func New(o Options) (*Real, error) {
	r := &Real{root: o.Root, hints: &hints{subs: map[chan struct{}]bool{}}, finder: newUserFinder(o.Root, deviceOf)}
	var err error
	if r.release, err = r.read("proc/sys/kernel/osrelease"); err != nil {
		return nil, fmt.Errorf("host: kernel release: %w", err)
	}
	// The host's /dev is not mounted here: it is seen through the host's first process.
	r.prober = &Prober{Root: filepath.Join(o.Root, "proc/1/root"), Sys: filepath.Join(o.Root, "sys")}
	r.caller = &kcall.Caller{Command: o.Command, Children: kcall.Children{Deadline: o.Deadline, Returned: r.hints.tell}}
	r.modprobe = &modprobe.Runner{
		Stage: modprobe.Stage{Temp: modprobe.Temp, Kmod: o.Kmod, HostModules: r.modulesDir(), Release: r.release,
			Packing: packing(r.read), Watchdog: o.Watchdog},
		Children: kcall.Children{Deadline: o.Deadline, Returned: r.hints.tell},
	}
	return r, nil
}

// read returns a file of the host without blanks around it.
func (r *Real) read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		return "", err //nolint:wrapcheck // the caller says what it is
	}
	return strings.TrimSpace(string(data)), nil
}

// Release implements Host.
func (r *Real) Release() string { return r.release }

// BootID implements Host.
func (r *Real) BootID() (string, error) {
	id, err := r.read("proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("host: boot ID: %w", err)
	}
	return id, nil
}

// Modules implements Host.
func (r *Real) Modules() (map[string]State, error) {
	data, err := r.read("proc/modules")
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]State{}, nil // a kernel without modules
	}
	if err != nil {
		return nil, fmt.Errorf("host: modules: %w", err)
	}
	return parseModules(data), nil
}

// Module implements Host.
func (r *Real) Module(name string) (Module, bool, error) {
	return readModule(filepath.Join(r.root, "sys/module"), kmod.NormalizeName(name), r.prober.within)
}

// BuiltIn implements Host. modules.builtin names all built-in modules. Without it, /sys/module has
// to do: a built-in module with parameters has a directory without initstate, and so has, for a
// moment, one that comes or goes.
func (r *Real) BuiltIn(name string) (bool, error) {
	name = kmod.NormalizeName(name)
	list, err := os.ReadFile(filepath.Join(r.modulesDir(), "modules.builtin"))
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Join(r.root, "sys/module", name)
		if !filepath.IsLocal(name) || name != filepath.Base(name) || name == "." || !isDir(dir) {
			return false, nil
		}
		_, err := os.Stat(filepath.Join(dir, "initstate"))
		return errors.Is(err, fs.ErrNotExist), nil
	}
	if err != nil {
		return false, fmt.Errorf("host: built-in modules: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if n, ok := kmod.ModuleName(strings.TrimSpace(line)); ok && n == name {
			return true, nil
		}
	}
	return false, nil
}

// Probe implements Host.
func (r *Real) Probe(p Probe) (bool, string) { return r.prober.Look(p) }

// machines by the names of Go's architectures: this program runs on the kernel's own.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV,
}

// Rules implements Host.
func (r *Real) Rules() (Rules, error) {
	return Rules{Machine: uint16(machines[runtime.GOARCH]), ModulesDisabled: r.modulesDisabled()}, nil
}

func (r *Real) firmwarePath() string {
	return filepath.Join(r.root, "sys/module/firmware_class/parameters/path")
}

// FirmwarePath reads the kernel's search path for firmware, for package firmware.
func (r *Real) FirmwarePath() (string, error) {
	value, err := os.ReadFile(r.firmwarePath())
	if err != nil {
		return "", fmt.Errorf("host: firmware search path: %w", err)
	}
	return strings.TrimRight(string(value), "\n"), nil
}

// SetFirmwarePath writes it. An empty write would not reach the kernel: it becomes a NUL byte.
func (r *Real) SetFirmwarePath(value string) error {
	file, err := os.OpenFile(r.firmwarePath(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("host: set the firmware search path: %w", err)
	}
	_, err = file.WriteString(cmp.Or(value, "\x00"))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("host: set the firmware search path: %w", err)
	}
	return nil
}

// Dumps implements Host.
func (r *Real) Dumps() ([]Dump, error) {
	return readDumps(filepath.Join(r.root, "sys/fs/pstore"), filepath.Join(r.root, "var/lib/systemd/pstore"))
}

// Tree implements Host.
func (r *Real) Tree() (fs.FS, error) { return hostTree{dir: r.modulesDir(), root: r.root}, nil }

// modulesDir is lib/modules/<release>, where the pod has the host's mounted, or usr/lib/modules.
func (r *Real) modulesDir() string {
	dir := filepath.Join(r.root, "lib/modules", r.release)
	if _, err := os.Stat(dir); err != nil {
		if usr := filepath.Join(r.root, "usr/lib/modules", r.release); isDir(usr) {
			return usr
		}
	}
	return dir
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// Load implements Host.
func (r *Real) Load(_ context.Context, req LoadRequest) error {
	file, ok := req.File.(*os.File)
	if !ok {
		return fmt.Errorf("host: load %s: the file is not on disk", req.Name)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("host: load %s: %w", req.Name, err)
	}
	compression, _ := r.read("sys/module/compression") // without it, the kernel cannot, and kcall does
	line, _ := r.read("proc/cmdline")                  // without it, there are no parameters on it
	return r.call("finit_module", req.Name, kcall.Request{Load: &kcall.Load{
		Name: req.Name, Params: append(cmdlineParams(line, req.Name), req.Params...), KernelDecompresses: compression,
		ByLabel: loadsByLabel(r.read),
	}}, file)
}

// Unload implements Host.
func (r *Real) Unload(_ context.Context, req UnloadRequest) error {
	return r.call("delete_module", req.Name, kcall.Request{Unload: kmod.NormalizeName(req.Name)}, nil)
}

func (r *Real) call(call, module string, request kcall.Request, file *os.File) error {
	before := r.logEnd()
	answer, err := r.caller.Call(module, request, file)
	switch {
	case errors.Is(err, kcall.ErrLeftBehind):
		return fmt.Errorf("%s %s: %w", call, module, ErrTimeout)
	case errors.Is(err, kcall.ErrNotStarted):
		return fmt.Errorf("%s %s: %w: %w", call, module, ErrNotMade, err)
	case errors.Is(err, kcall.ErrDied):
		return &DiedError{Call: call, Module: module, Log: newText(before, r.log()), Err: err}
	case err != nil:
		return fmt.Errorf("%s %s: %w", call, module, err)
	case answer.Errno == "":
		return nil
	}
	return r.refusal(call, module, answer.Errno, before)
}

// HasModprobe tells whether there is a kmod program to run as modprobe.
func (r *Real) HasModprobe() bool {
	_, err := exec.LookPath(r.modprobe.Stage.Kmod)
	return err == nil
}

// ModprobeRunning tells whether a modprobe that was left behind is still running.
func (r *Real) ModprobeRunning() bool { return r.modprobe.Running() }

// Modprobe lays out the image's tree and runs kmod's modprobe on it, with the deadline of kernel
// calls. Its errors are those of Load and Unload, as far as the program tells the kernel's answer.
func (r *Real) Modprobe(_ context.Context, req ModprobeRequest) error {
	name := cmp.Or(strings.Join(req.Modules, " "), "modprobe")
	before := r.logEnd()
	err := r.modprobe.Run(req.Args, req.Content)
	var failed *modprobe.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kcall.ErrLeftBehind):
		return fmt.Errorf("modprobe %s: %w", name, ErrTimeout)
	case errors.Is(err, kcall.ErrNotStarted):
		return fmt.Errorf("modprobe %s: %w: %w", name, ErrNotMade, err)
	case !errors.As(err, &failed):
		return err
	case failed.Killed:
		return &DiedError{Call: "modprobe", Module: name, Log: newText(before, r.log()), Err: err}
	case failed.Errno == "":
		return err
	}
	return r.refusal("modprobe", kmod.NormalizeName(cmp.Or(failed.Module, name)), failed.Errno, before)
}

// refusal explains the kernel's answer by what it has logged since before.
func (r *Real) refusal(call, module, errno, before string) error {
	lines := newLines(before, r.log())
	if errno == "EPERM" && r.modulesDisabled() {
		lines = append([]string{"kernel.modules_disabled is 1"}, lines...)
	}
	lines = append(seLinuxSays(r.read, errno), lines...)
	return &CallError{Call: call, Module: module, Errno: errno, Log: lines}
}

func (r *Real) modulesDisabled() bool {
	v, err := r.read("proc/sys/kernel/modules_disabled")
	return err == nil && v == "1"
}

// logEndSize holds at least one line of the kernel's log: level, time and up to 1 KiB.
const logEndSize = 4 << 10

// logEnd is the end of the ring buffer, enough to find it again after a call.
func (r *Real) logEnd() string { return readLog(logEndSize) }

// log is the whole ring buffer.
func (r *Real) log() string {
	size, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil || size <= 0 {
		return ""
	}
	return readLog(size)
}

// readLog returns nothing without the privilege to read the log: its lines only explain.
func readLog(size int) string {
	buffer := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// Users implements Host.
func (r *Real) Users(name string) ([]User, error) { return r.finder.users(name) }

// deviceOf is the number of the device node that a path leads to. It asks no file server.
func deviceOf(path string) (deviceNumber, bool) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &s); err != nil {
		return deviceNumber{}, false
	}
	kind := s.Mode & unix.S_IFMT
	return deviceNumber{block: kind == unix.S_IFBLK, major: s.Rdev_major, minor: s.Rdev_minor}, kind == unix.S_IFCHR || kind == unix.S_IFBLK
}

// hostTree is a directory of the host, whose root is mounted at root: absolute links, as RHEL's
// weak-updates have them ("/lib/modules/<another kernel>/extra/…"), begin there.
type hostTree struct{ dir, root string }

// Open implements fs.FS. Files are *os.File.
func (t hostTree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.Open(follow(t.root, filepath.Join(t.dir, name)))
	if err != nil {
		return nil, err //nolint:wrapcheck // fs.FS asks for an *fs.PathError
	}
	return f, nil
}
