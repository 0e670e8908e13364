// SPDX-License-Identifier: Apache-2.0

// Package plan finds out which modules an order brings into the kernel, from which files, in which
// order. It reads the trees of image and host, and changes nothing.
package plan

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Plan is what one order brings into the kernel.
type Plan struct {
	Main     string          // the module that the order names
	BuiltIn  bool            // the kernel has Main compiled in; Steps is empty
	Steps    []Step          // in load order
	Firmware fs.FS           // the files to stage before the load; nil: none
	Hopeless *orders.Attempt // why the kernel will certainly refuse it; nil: it may load
	Modprobe []string        // kmod's command line, about image; nil: the agent loads the steps itself
	image    fs.FS
}

// Step is one module of a plan.
type Step struct {
	Name     string
	BuildID  string   // the file's identity, as the kernel shows it of a loaded module
	Content  string   // the file's digest where BuildID is empty; the kernel does not show it
	InTree   bool     // it was built from the kernel's own sources
	Optional bool     // what the order names works without it
	Needs    []string // the modules whose symbols it uses
	Params   []kmod.Param
	FromHost bool  // the file is of the node's own tree, not of the image
	Tree     fs.FS // where the file is, at Path
	Path     string
	// way tells apart loads of one build that may be answered differently; empty: the agent's own.
	way string
}

// Step is the step of a module; zero when there is none.
func (p *Plan) Step(name string) Step {
	for _, s := range p.Steps {
		if s.Name == name {
			return s
		}
	}
	return Step{}
}

// MainStep is the step of the module that the order names; zero when it is built in.
func (p *Plan) MainStep() Step { return p.Step(p.Main) }

// Blamed is the step that an error names; without one, that of the main module.
func (p *Plan) Blamed(err error) Step {
	if call, ok := errors.AsType[*host.CallError](err); ok {
		if s := p.Step(call.Module); s.Name != "" {
			return s
		}
	}
	return p.MainStep()
}

// Request is a run of modprobe for the plan.
func (p *Plan) Request(k orders.Key, c v1beta1.ModprobeSpec) host.ModprobeRequest {
	return host.ModprobeRequest{Args: p.Modprobe, For: k.String(), Content: modprobe.Content{
		Dir: c.DirName, Image: p.image, Modules: modprobe.Parse(p.Modprobe).Modules, LoadOrder: c.ModulesLoadingOrder,
	}}
}

// Is tells whether a module in the kernel is this step's build. Without an identity, both have to
// come from the kernel's own sources, or both from outside.
func (s Step) Is(m host.Module) bool {
	return orders.IdentityOf(m) == s.BuildID && (s.BuildID != "" || strings.Contains(m.Taint, "O") != s.InTree)
}

// Build identifies what the step would load, and how.
func (s Step) Build() string {
	id := s.BuildID
	if id == "" {
		id = s.Content
	}
	if s.way != "" {
		id += " " + s.way
	}
	return s.Name + " " + id
}

// Error says why there is no plan, with a reason of the closed set.
type Error struct {
	Reason string
	Err    error
	Needs  string // the missing module that would make a plan possible; may be empty
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
