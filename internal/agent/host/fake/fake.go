// SPDX-License-Identifier: Apache-2.0

// Package fake is a node in memory: a kernel that loads and unloads real module files with the real
// rules about dependencies, users, duplicates, version magic, signatures and taints, that reboots,
// oopses and panics, and that writes down every call it gets.
//
// It is for hollow nodes, tests and benches; its journal is what they audit. A node costs a few
// KiB.
package fake

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Options of a fake node.
type Options struct {
	// Release is what uname -r says.
	Release string
	// Tree is the host's lib/modules/<Release>. Default: none there.
	Tree fs.FS
	// Machine is the ELF machine of its modules; 0: unknown.
	Machine uint16
	// BuiltIn modules, by name.
	BuiltIn []string
	// Permanent modules, by name: they have no exit function, so that nothing unloads them.
	Permanent []string
	// Security of the first boot.
	Security Security
	// Clock is the real one unless set.
	Clock clock.WithTicker
	// Deadline of a call; one that is scripted to take longer ends in ErrTimeout. Default 60 s.
	Deadline time.Duration
	// Died ends whoever made the call during which the node went down; it does not return. Default:
	// runtime.Goexit.
	Died func()
}

// Host is a fake node. It implements host.Host and is safe for concurrent use.
type Host struct {
	o Options

	mu       sync.Mutex
	boot     string
	boots    int
	modules  map[string]*module
	builtIn  map[string]bool
	disabled bool // kernel.modules_disabled
	taint    map[byte]bool
	security Security // of this boot; the options' is the next one's
	pending  int      // modules whose init or exit was left behind and will return
	unplug   map[string]bool
	faults   map[string][]*Fault
	calls    []Call
	dumps    []host.Dump
	files    map[string]string // of /dev and /sys
	watchers map[chan struct{}]bool
	hurried  int // searches for users that end early
}

var _ host.Host = (*Host)(nil)

type module struct {
	info    *kmod.Info
	state   host.State
	users   []host.User // of other kinds than modules; those that are not named are empty
	params  map[string]string
	passed  map[string]string // all parameters, also those that the module does not know
	depends []string
	takes   []string // modules that it uses without their symbols
	signed  bool     // by a key of this boot's keyring
	// returns is when an init or exit that was left behind does so, with the errno; zero: it will not,
	// or nobody waits.
	returns time.Time
	errno   string
}

// Call is one entry of the call journal.
type Call struct {
	// Time of the call's end.
	Time time.Time `json:"time"`
	// BootID of the boot in which it happened.
	BootID string `json:"bootID"`
	// Call is "finit_module" or "delete_module"; "insmod", "rmmod" and "reboot" for what a person did;
	// "returned" for what a call that was left behind did in the end (a module without a build ID
	// there went away).
	Call string `json:"call"`
	// Module is the module's name.
	Module string `json:"module,omitempty"`
	// BuildID of the module that was loaded or unloaded.
	BuildID string `json:"buildID,omitempty"`
	// Params that were passed.
	Params []string `json:"params,omitempty"`
	// Result is "" or the error's symbolic name; "timeout", "oops" or "panic" for calls without an
	// answer.
	Result string `json:"result,omitempty"`
	// For is who asked: namespace/name of a Module.
	For string `json:"for,omitempty"`
}

// Fault is a scripted failure or delay of a module's init or exit function. What the kernel itself
// refuses comes first.
type Fault struct {
	// Errno that the call ends with; empty: it succeeds.
	Errno string
	// Oops kills the task that calls: the module stays as it is, coming or going, for the rest of this
	// boot.
	Oops bool
	// Panic takes the node down. With Dump, the kernel leaves its log in persistent storage.
	Panic, Dump bool
	// Log lines the kernel prints.
	Log []string
	// Delay before the call ends.
	Delay time.Duration
	// Times it happens; 0: always.
	Times int

	hits int
}

// New boots a fake node.
func New(o Options) *Host {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Tree == nil {
		o.Tree = emptyTree{}
	}
	if o.Deadline <= 0 {
		o.Deadline = time.Minute
	}
	if o.Died == nil {
		o.Died = runtime.Goexit
	}
	h := &Host{o: o, builtIn: map[string]bool{}, unplug: map[string]bool{}, faults: map[string][]*Fault{}, watchers: map[chan struct{}]bool{}}
	for _, n := range o.BuiltIn {
		h.builtIn[kmod.NormalizeName(n)] = true
	}
	h.startKernel()
	return h
}

func (h *Host) startKernel() {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	h.boot = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	h.modules, h.disabled, h.pending, h.files = map[string]*module{}, false, 0, map[string]string{}
	h.taint, h.security = map[byte]bool{}, h.o.Security
}

// Release implements host.Host.
func (h *Host) Release() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.Release
}

// BootID implements host.Host.
func (h *Host) BootID() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot, nil
}

// Modules implements host.Host.
func (h *Host) Modules() (map[string]host.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	states := make(map[string]host.State, len(h.modules))
	for name, m := range h.modules {
		states[name] = m.state
	}
	return states, nil
}

// Module implements host.Host.
func (h *Host) Module(name string) (host.Module, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	m, ok := h.modules[kmod.NormalizeName(name)]
	if !ok {
		return host.Module{}, false, nil
	}
	holders := h.holders(m.info.Name)
	out := host.Module{
		Name: m.info.Name, State: m.state, BuildID: m.info.BuildID, SrcVersion: m.info.SrcVersion,
		RefCount: len(m.users) + len(holders) + h.taken(m.info.Name), Holders: holders, Taint: m.taints(), Parameters: maps.Clone(m.params),
	}
	if m.state == host.StateComing {
		out.RefCount++ // the kernel's own, until init has returned
	}
	return out, true, nil
}

// BuiltIn implements host.Host.
func (h *Host) BuiltIn(name string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.builtIn[kmod.NormalizeName(name)], nil
}

// Rules implements host.Host.
func (h *Host) Rules() (host.Rules, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return host.Rules{Machine: h.o.Machine, ModulesDisabled: h.disabled}, nil
}

// Dumps implements host.Host.
func (h *Host) Dumps() ([]host.Dump, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.dumps), nil
}

// Tree implements host.Host.
func (h *Host) Tree() (fs.FS, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.Tree, nil
}

// Changes implements host.Host.
func (h *Host) Changes(ctx context.Context) (<-chan struct{}, error) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	h.watchers[c] = true
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
		close(c)
	})
	return c, nil
}
