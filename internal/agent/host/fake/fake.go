// SPDX-License-Identifier: Apache-2.0

// Package fake is a node in memory: a kernel that loads and unloads real module files with the real rules about
// dependencies, users, duplicates and version magic, that reboots, and that writes down every call it gets.
//
// It is for hollow nodes, tests and benches; its journal is what they audit. A node costs a few KiB.
package fake

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
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
	// Clock is the real one unless set.
	Clock clock.WithTicker
	// Deadline of a call; one that is scripted to take longer ends in ErrTimeout. Default 60 s.
	Deadline time.Duration
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
	faults   map[string][]*Fault
	calls    []Call
	dumps    []host.Dump
	watchers map[chan struct{}]bool
}

var _ host.Host = (*Host)(nil)

type module struct {
	info    *kmod.Info
	state   host.State
	users   []host.User // of other kinds than modules; those that are not named are empty
	params  map[string]string
	depends []string
}

// Call is one entry of the call journal.
type Call struct {
	// Time of the call's end.
	Time time.Time `json:"time"`
	// BootID of the boot in which it happened.
	BootID string `json:"bootID"`
	// Call is "finit_module" or "delete_module"; or "insmod", "rmmod" and "reboot" for what a person did.
	Call string `json:"call"`
	// Module is the module's name.
	Module string `json:"module,omitempty"`
	// BuildID of the module that was loaded or unloaded.
	BuildID string `json:"buildID,omitempty"`
	// Params that were passed.
	Params []string `json:"params,omitempty"`
	// Result is "" or the error's symbolic name.
	Result string `json:"result,omitempty"`
	// For is who asked: namespace/name of a Module.
	For string `json:"for,omitempty"`
}

// Fault is a scripted failure or delay of a call.
type Fault struct {
	// Errno that the call ends with; empty: it succeeds.
	Errno string
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
	h := &Host{o: o, builtIn: map[string]bool{}, faults: map[string][]*Fault{}, watchers: map[chan struct{}]bool{}}
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
	h.modules, h.disabled = map[string]*module{}, false
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
	m, ok := h.modules[kmod.NormalizeName(name)]
	if !ok {
		return host.Module{}, false, nil
	}
	holders := h.holders(m.info.Name)
	out := host.Module{
		Name: m.info.Name, State: m.state, BuildID: m.info.BuildID, SrcVersion: m.info.SrcVersion,
		RefCount: len(m.users) + len(holders), Holders: holders, Parameters: maps.Clone(m.params),
	}
	if !m.info.InTree {
		out.Taint += "O"
	}
	if !m.info.Signed {
		out.Taint += "E"
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

// Load implements host.Host.
func (h *Host) Load(ctx context.Context, r host.LoadRequest) error {
	content, err := io.ReadAll(r.File)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.Name, err)
	}
	info, err := kmod.Read(content)
	if err != nil {
		return h.end(Call{Call: "finit_module", Module: r.Name, For: r.For}, &host.CallError{Errno: "ENOEXEC", Log: []string{err.Error()}})
	}
	call := Call{Call: "finit_module", Module: info.Name, BuildID: info.BuildID, Params: r.Params, For: r.For}
	if f := h.fault("finit_module", info.Name); f != nil {
		if err := h.delay(ctx, f, info.Name); err != nil {
			return h.end(call, err)
		}
		if f.Errno != "" {
			return h.end(call, &host.CallError{Errno: f.Errno, Log: f.Log})
		}
	}
	return h.end(call, h.insert(info, r.Params))
}

// Unload implements host.Host.
func (h *Host) Unload(ctx context.Context, r host.UnloadRequest) error {
	name := kmod.NormalizeName(r.Name)
	call := Call{Call: "delete_module", Module: name, For: r.For}
	if f := h.fault("delete_module", name); f != nil {
		if err := h.delay(ctx, f, name); err != nil {
			return h.end(call, err)
		}
		if f.Errno != "" {
			return h.end(call, &host.CallError{Errno: f.Errno, Log: f.Log})
		}
	}
	id, err := h.remove(name)
	call.BuildID = id
	return h.end(call, err)
}

// insert follows the kernel: duplicate, version magic, symbols (here: the modules that have them), then init.
func (h *Host) insert(info *kmod.Info, params []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	refused := func(errno, line string) error {
		return &host.CallError{Errno: errno, Log: []string{info.Name + ": " + line}}
	}
	if h.disabled {
		return refused("EPERM", "kernel.modules_disabled is 1")
	}
	if _, ok := h.modules[info.Name]; ok {
		return &host.CallError{Errno: "EEXIST"}
	}
	if magic := kmod.ParseVermagic(info.Vermagic); !info.HasCRCs && strings.TrimSuffix(magic.Release, "+") != strings.TrimSuffix(h.o.Release, "+") {
		return refused("ENOEXEC", fmt.Sprintf("version magic '%s' should be '%s'", info.Vermagic, h.o.Release))
	}
	m := &module{info: info, state: host.StateLive, params: map[string]string{}}
	for _, d := range info.Depends {
		if h.builtIn[d] {
			continue
		}
		if h.modules[d] == nil {
			return refused("ENOENT", "Unknown symbol of "+d+" (err -2)")
		}
		m.depends = append(m.depends, d)
	}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		if !slices.ContainsFunc(info.Params, func(known kmod.Param) bool { return known.Name == name }) {
			// The kernel only notes an unknown parameter and goes on.
			continue
		}
		m.params[name] = value
	}
	h.modules[info.Name] = m
	return nil
}

func (h *Host) remove(name string) (buildID string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.modules[name]
	switch {
	case !ok:
		return "", &host.CallError{Errno: "ENOENT"}
	case len(h.holders(name)) > 0, len(m.users) > 0:
		return m.info.BuildID, &host.CallError{Errno: "EAGAIN"}
	}
	delete(h.modules, name)
	return m.info.BuildID, nil
}

func (h *Host) holders(name string) []string {
	var holders []string
	for other, m := range h.modules {
		if slices.Contains(m.depends, name) {
			holders = append(holders, other)
		}
	}
	slices.Sort(holders)
	return holders
}
