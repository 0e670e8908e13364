// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/status"
)

// Asks are what one generation of a Module asks for, by kernel and processor. They are computed once per kernel: nodes are many,
// kernels few. They are not safe for concurrent use.
type Asks struct {
	module   *v1beta1.Module
	mapper   *kernel.Mapper
	err      error
	byKernel map[string]ask
	declared *pipeline.Declarations
}

// ask is what is asked of one kernel, or why nothing can be; neither for a Module that loads nothing.
type ask struct {
	want    *status.Ask
	problem *reasons.Problem
}

// NewAsks compiles the Module's mappings. It keeps module.
func NewAsks(module *v1beta1.Module) *Asks {
	a := &Asks{module: module, byKernel: map[string]ask{}, declared: pipeline.NewDeclarations(module)}
	if loader := module.Spec.ModuleLoader; loader != nil {
		a.mapper, a.err = kernel.NewMapper(loader, module.Namespace, module.Name)
	}
	return a
}

// Of reports whether they are those of the Module as it is now.
func (a *Asks) Of(module *v1beta1.Module) bool {
	return a.module.UID == module.UID && a.module.Generation == module.Generation
}

// On returns what is asked of a kernel and processor, as the node reports them. The result is shared.
func (a *Asks) On(version, arch string) (*status.Ask, *reasons.Problem) {
	if a.module.Spec.ModuleLoader == nil {
		return nil, nil
	}
	key := version + "/" + arch
	known, ok := a.byKernel[key]
	if !ok {
		known = a.resolve(version, arch)
		kernel.Remember(a.byKernel, key, known)
	}
	return known.want, known.problem
}

func (a *Asks) resolve(version, arch string) ask {
	if a.err != nil {
		return unmapped(a.err.Error())
	}
	resolved, found, err := a.mapper.For(version, arch)
	switch {
	case err != nil:
		return unmapped(err.Error())
	case !found:
		return unmapped("")
	}
	id, err := delivery.ID(a.module, &resolved.Config, "")
	if err != nil {
		return unmapped(err.Error())
	}
	return ask{want: &status.Ask{Config: resolved.Config, Delivery: id, Mapping: resolved.Mapping}}
}

func unmapped(message string) ask {
	return ask{problem: &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: message}}
}
