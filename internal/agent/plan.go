// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
)

// plan is what one order brings into the kernel, in load order.
type plan struct {
	// Main is the module that the order names.
	Main string
	// BuiltIn: the kernel has Main compiled in; Steps is empty.
	BuiltIn bool
	Steps   []planStep
}

// planStep is one module of a plan.
type planStep struct {
	Name string
	// BuildID is the file's identity.
	BuildID string
	// Tree and Path say where the file is.
	Tree fs.FS
	Path string
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

// planError says why there is no plan, with a reason of the closed set.
type planError struct {
	reason string
	err    error
}

func (e *planError) Error() string { return e.err.Error() }
func (e *planError) Unwrap() error { return e.err }

// makePlan finds the modules to load for an order in the delivery's tree and the host's.
func makePlan(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host) (*plan, error) {
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
	hostFS, hostTree, err := hostTree(h)
	if err != nil {
		return nil, err
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: []string{main}, LoadOrder: c.Modprobe.ModulesLoadingOrder}, image, hostTree)
	if err != nil {
		return nil, &planError{reason: resolveReason(err), err: err}
	}
	p := &plan{Main: main}
	for _, s := range steps {
		step := planStep{Name: s.Name, BuildID: identity(s.Info.BuildID, s.Info.SrcVersion), Tree: imageFS, Path: s.Path}
		if s.From == kmod.Host {
			step.Tree = hostFS
		}
		if s.Name == main && s.From == kmod.Host {
			return nil, &planError{v1beta1.ReasonMissingDependency, fmt.Errorf("module %s is not in the image for kernel %s", main, h.Release())}
		}
		p.Steps = append(p.Steps, step)
	}
	if len(p.Steps) == 0 { // modules.builtin of the image names it
		p.BuiltIn = true
	}
	return p, nil
}

// imageTree indexes the delivery's modules for the running kernel. Upstream drops a "+" at the end of the release where
// images are built, so the name without it is tried as well.
func imageTree(delivery fs.FS, release string) (fs.FS, *kmod.Tree, error) {
	for _, name := range []string{release, strings.TrimSuffix(release, "+")} {
		dir, err := fs.Sub(delivery, path.Join("lib/modules", name))
		if err != nil {
			return nil, nil, &planError{v1beta1.ReasonImageUnreadable, err}
		}
		tree, err := kmod.NewTree(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, &planError{v1beta1.ReasonImageUnreadable, err}
		}
		return dir, tree, nil
	}
	return nil, nil, &planError{v1beta1.ReasonImageUnreadable, fmt.Errorf("the image has no directory lib/modules/%s", release)}
}

// hostTree indexes the host's own modules; a host without any is fine.
func hostTree(h host.Host) (fs.FS, *kmod.Tree, error) {
	dir, err := h.Tree()
	if err != nil {
		return nil, nil, err
	}
	tree, err := kmod.NewTree(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the host's modules: %w", err)
	}
	return dir, tree, nil
}

func resolveReason(err error) string {
	var missing *kmod.MissingDependencyError
	var notFound *kmod.NotFoundError
	if errors.As(err, &missing) || errors.As(err, &notFound) {
		return v1beta1.ReasonMissingDependency
	}
	return v1beta1.ReasonImageUnreadable
}
