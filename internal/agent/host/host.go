// SPDX-License-Identifier: Apache-2.0

// Package host is the only code that touches the node: its kernel, /proc, /sys, /lib/modules.
//
// Host is the contract. New makes the real one (Linux), package fake one in memory. Both answer
// from what the kernel says at the moment of the call and remember nothing for their callers.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

// Options of the real host.
type Options struct {
	Root     string             // where the host's proc, sys and lib/modules are mounted: "/host" in a pod
	Command  []string           // makes one kernel call by package kcall, for example {"/proc/self/exe", "kcall"}
	Deadline time.Duration      // of one kernel call
	Kmod     string             // kmod's program, which runs as modprobe and depmod
	Watchdog *watchdog.Watchdog // is told of progress before the call of modprobe; may be nil
}

// Host is one node.
type Host interface {
	// Release is the running kernel's release, as `uname -r` prints it.
	Release() string
	// BootID identifies this boot, as the Node's status.nodeInfo.bootID does.
	BootID() (string, error)
	// Modules maps the names of all modules in the kernel, with '_' for '-', to their states.
	Modules() (map[string]State, error)
	// Module reads all facts about one module. ok is false if it is not in the kernel.
	Module(name string) (m Module, ok bool, err error)
	// BuiltIn tells whether the module is compiled into the kernel.
	BuiltIn(name string) (bool, error)
	// Rules are what the kernel demands of every module.
	Rules() (Rules, error)
	// Probe tells whether a probe finds what it looks for; if not, found may say what there is.
	Probe(p Probe) (ok bool, found string)
	// Dumps are the kernel's logs of crashes in earlier boots (pstore), newest first.
	Dumps() ([]Dump, error)
	// Tree is the host's own lib/modules/<Release()>.
	Tree() (fs.FS, error)
	// Load inserts a module and returns when its init has returned. The error is a *CallError if the
	// kernel refuses, a *DiedError if the call was killed, and matches ErrNotMade if it never began,
	// or ErrTimeout if it did not return in time: it may still be running.
	Load(ctx context.Context, r LoadRequest) error
	// Unload removes a module that nobody uses, and never waits for users. Errors are those of Load;
	// EBUSY and EAGAIN mean in use.
	Unload(ctx context.Context, r UnloadRequest) error
	// Users are at most MaxUsers users of a module, in SortUsers' order. It takes seconds at most. An
	// error says why users may be missing; those that are returned with it are true.
	Users(name string) ([]User, error)
	// Changes sends a value after modules came or went, one for a burst. Events may be lost, so
	// callers poll slowly as well. The channel is closed when ctx ends.
	Changes(ctx context.Context) (<-chan struct{}, error)
}

// Rules are what a kernel demands of every module, as far as it shows.
type Rules struct {
	Machine         uint16 // its ELF machine, such as EM_X86_64; 0: unknown
	ModulesDisabled bool   // kernel.modules_disabled is 1, and stays so until the next boot
}

// Dump is the kernel's log of a crash.
type Dump struct {
	Text string
	Time time.Time // when it was written
}

// LoadRequest is one finit_module call.
type LoadRequest struct {
	Name   string
	File   fs.File  // the module's file, compressed or not; the caller closes it
	Params []string // key=value pairs, in order; those of the kernel's command line come before them
	For    string   // who asks (namespace/name of the Module); only for journals
}

// UnloadRequest is one delete_module call.
type UnloadRequest struct {
	Name string
	For  string // who asks (namespace/name of the Module); only for journals
}

// State of a module in the kernel.
type State string

// States as the kernel names them in initstate.
const (
	StateLive   State = "live"   // init has returned successfully
	StateComing State = "coming" // init is running
	StateGoing  State = "going"  // exit is running
)

// Module are the facts about one module in the kernel.
type Module struct {
	Name       string
	State      State
	BuildID    string            // the GNU build ID in hex; empty when the module has none
	SrcVersion string            // empty on kernels without it
	RefCount   int               // users of any kind; -1 when the kernel cannot unload modules
	Holders    []string          // the modules that use this one, sorted
	Taint      string            // letters, for example "OE"
	Parameters map[string]string // that the kernel lets be read
	Private    []string          // names of those Parameters that only root may read, sorted
}

// CallError is the kernel's refusal of one call.
type CallError struct {
	Call   string // "finit_module" or "delete_module"
	Module string
	Errno  string   // the error's symbolic name, for example "ENOEXEC"
	Log    []string // at most 10 lines that the kernel printed during the call, without timestamps and addresses
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Call, e.Module, e.Errno)
}

// Is makes errors.Is match a CallError with the same Errno (other fields empty).
func (e *CallError) Is(target error) bool {
	var t *CallError
	return errors.As(target, &t) && t.Call == "" && t.Module == "" && t.Errno == e.Errno
}

// ErrNotMade matches the error of a kernel call that never reached the kernel, for want of memory
// or processes for example.
var ErrNotMade = errors.New("the kernel call could not be made")

// ErrTimeout matches the error of a kernel call that did not return before its deadline.
var ErrTimeout = errors.New("the kernel call did not return in time")

// DiedError says that the process which made a call died in it, as in an oops. The module may stay
// coming or going until the next boot.
type DiedError struct {
	Call, Module string // as in CallError
	Log          string // all that the kernel printed during the call
	Err          error  // how the process ended
}

func (e *DiedError) Error() string { return fmt.Sprintf("%s %s: %v", e.Call, e.Module, e.Err) }

func (e *DiedError) Unwrap() error { return e.Err }

// Errno is a target for errors.Is: errors.Is(err, host.Errno("EBUSY")).
func Errno(name string) error { return &CallError{Errno: name} }

// ModprobeRequest is one run of kmod's modprobe.
type ModprobeRequest struct {
	// Args is the command line without the program's name. It names the image's tree /tmp<Dir>.
	Args []string
	modprobe.Content
	For string // who asks (namespace/name of the Module); only for journals
}
