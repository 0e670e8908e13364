// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/kmod"
)

// plan is what one order brings into the kernel, in load order.
type plan struct {
	// Main is the module that the order names.
	Main string
	// BuiltIn: the kernel has Main compiled in; Steps is empty.
	BuiltIn bool
	Steps   []planStep
	// Firmware holds the files to stage before the load; nil: none.
	Firmware fs.FS
	// hopeless is why the kernel will certainly refuse it.
	hopeless *report
	// modprobe is the command line for kmod's program and image the tree that it is about; nil: the agent loads the steps itself.
	modprobe []string
	image    fs.FS
}

// planStep is one module of a plan.
type planStep struct {
	Name string
	// BuildID is the file's identity, as the kernel shows it of a loaded module.
	BuildID string
	// Content is the file's digest where BuildID is empty: it tells builds apart, but not what is in the kernel.
	Content string
	// InTree: it was built from the kernel's own sources.
	InTree bool
	// Optional: what the order names works without it.
	Optional bool
	// Needs are the modules whose symbols it uses.
	Needs []string
	// Params are the names of its parameters.
	Params []string
	// FromHost: the file is of the node's own tree, not of the image.
	FromHost bool
	// Tree and Path say where the file is.
	Tree fs.FS
	Path string
	// way tells apart loads of one build that the kernel may answer differently; empty for the agent's own.
	way string
}

// main is the step of the module that the order names; zero when it is built in.
func (p *plan) main() planStep {
	for _, s := range p.Steps {
		if s.Name == p.Main {
			return s
		}
	}
	return planStep{}
}

// knownPlan is the plan that was last made for an order. The delivery may have been damaged since: it is good for decisions, and made anew,
// which verifies the delivery, before anything is loaded.
type knownPlan struct {
	hash string
	plan *plan
}

// planError says why there is no plan, with a reason of the closed set.
type planError struct {
	reason string
	err    error
	// needs is the missing module that would make a plan possible; may be empty.
	needs string
}

func (e *planError) Error() string { return e.err.Error() }
func (e *planError) Unwrap() error { return e.err }

// makePlan finds the modules to load for an order in the delivery's tree and the host's. What is outgoing cannot be counted on.
func makePlan(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing []string) (*plan, error) {
	main := kmod.NormalizeName(c.Modprobe.ModuleName)
	builtIn, err := h.BuiltIn(main)
	if err != nil {
		return nil, err
	}
	if builtIn {
		return &plan{Main: main, BuiltIn: true}, nil
	}
	imageFS, image, err := imageTree(delivery, h.Release())
	if err != nil {
		return nil, err
	}
	hostFS, hostTree, err := hostTree(h, kmod.NewIndexedTree)
	if err != nil {
		return nil, err
	}
	live, err := liveNames(h, outgoing)
	if err != nil {
		return nil, err
	}
	want := kmod.Want{Modules: []string{main}, LoadOrder: c.Modprobe.ModulesLoadingOrder, Live: live}
	steps, err := kmod.Resolve(want, image, hostTree)
	if err != nil { // the host's index may be older than its modules
		if hostFS, hostTree, err = walkedHostTree(h); err != nil {
			return nil, err
		}
		steps, err = kmod.Resolve(want, image, hostTree)
	}
	if err != nil {
		return nil, unresolved(err)
	}
	p := &plan{Main: main}
	if p.Firmware, err = firmwareOf(c, delivery); err != nil {
		return nil, err
	}
	for _, s := range steps {
		if s.Name == main && s.From == kmod.Host {
			return nil, &planError{reason: v1beta1.ReasonMissingDependency, err: fmt.Errorf("module %s is not in the image for kernel %s", main, h.Release())}
		}
		step, err := newStep(s, imageFS, hostFS)
		if err != nil {
			return nil, err
		}
		p.Steps = append(p.Steps, step)
	}
	p.BuiltIn = len(p.Steps) == 0 // modules.builtin of the host's tree names it
	p.hopeless, err = hopeless(h, hostTree, steps)
	return p, err
}

// firmwareOf are the files to stage; nil: none.
func firmwareOf(c v1beta1.ModuleConfig, delivery fs.FS) (fs.FS, error) {
	if c.Modprobe.FirmwarePath == "" {
		return nil, nil
	}
	files, err := fs.Sub(delivery, manifest.FirmwareDir)
	if err != nil {
		return nil, &planError{reason: v1beta1.ReasonImageUnreadable, err: err}
	}
	return files, nil
}

// newStep is one module of a plan.
func newStep(s kmod.Step, imageFS, hostFS fs.FS) (planStep, error) {
	step := planStep{
		Name: s.Name, BuildID: identity(s.Info.BuildID, s.Info.SrcVersion), Tree: imageFS, Path: s.Path, Optional: s.Optional,
		Needs: s.Info.Depends, InTree: s.Info.InTree,
	}
	for _, param := range s.Info.Params {
		step.Params = append(step.Params, param.Name)
	}
	if s.From == kmod.Host {
		step.Tree, step.FromHost = hostFS, true
	}
	if inner := s.Info.Name; inner != "" && inner != s.Name { // the kernel goes by the name inside
		return step, &planError{reason: v1beta1.ReasonImageUnreadable, err: fmt.Errorf("%s holds the module %s, not %s", s.Path, inner, s.Name)}
	}
	if step.BuildID == "" {
		var err error
		if step.Content, err = contentOf(step.Tree, step.Path); err != nil {
			return step, &planError{reason: v1beta1.ReasonImageUnreadable, err: err}
		}
	}
	return step, nil
}

// outgoing are the modules that leave the kernel before another build is loaded for the order.
func (f facts) outgoing() []string {
	names := f.inTree()
	for _, m := range f.oursLive() {
		names = append(names, m.Name)
	}
	return names
}

// liveNames are the modules that the kernel holds, that work, and that stay.
func liveNames(h host.Host, outgoing []string) (map[string]bool, error) {
	present, err := h.Modules()
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for name, state := range present {
		live[name] = state == host.StateLive && !slices.Contains(outgoing, name)
	}
	return live, nil
}

// contentOf is the digest of a file.
func contentOf(tree fs.FS, path string) (string, error) {
	file, err := tree.Open(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = file.Close() }() // only read from
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// imageTree indexes the delivery's modules for the running kernel. Upstream drops a "+" at the end of the release where
// images are built, so the name without it is tried as well.
func imageTree(delivery fs.FS, release string) (fs.FS, *kmod.Tree, error) {
	for _, name := range []string{release, strings.TrimSuffix(release, "+")} {
		dir, err := fs.Sub(delivery, path.Join("lib/modules", name))
		if err != nil {
			return nil, nil, &planError{reason: v1beta1.ReasonImageUnreadable, err: err}
		}
		tree, err := kmod.NewTree(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, &planError{reason: v1beta1.ReasonImageUnreadable, err: err}
		}
		return dir, tree, nil
	}
	return nil, nil, &planError{reason: v1beta1.ReasonImageUnreadable, err: fmt.Errorf("the image has no directory lib/modules/%s", release)}
}

// walkedHostTree indexes the host's own modules by looking at every directory.
func walkedHostTree(h host.Host) (fs.FS, *kmod.Tree, error) { return hostTree(h, kmod.NewHostTree) }

// hostTree indexes the host's own modules; a host without any is fine.
func hostTree(h host.Host, index func(fs.FS) (*kmod.Tree, error)) (fs.FS, *kmod.Tree, error) {
	dir, err := h.Tree()
	if err != nil {
		return nil, nil, err
	}
	tree, err := index(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the host's modules: %w", err)
	}
	return dir, tree, nil
}

func unresolved(err error) *planError {
	var missing *kmod.MissingDependencyError
	var notFound *kmod.NotFoundError
	switch {
	case errors.As(err, &missing):
		return &planError{reason: v1beta1.ReasonMissingDependency, err: err, needs: missing.Needs}
	case errors.As(err, &notFound):
		return &planError{reason: v1beta1.ReasonMissingDependency, err: err}
	}
	return &planError{reason: v1beta1.ReasonImageUnreadable, err: err}
}
