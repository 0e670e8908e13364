// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/status"
)

// asks are what one generation of a Module asks for, by kernel. They are computed once per kernel: nodes are many,
// kernels few.
type asks struct {
	uid        types.UID
	generation int64
	module     *v1beta1.Module
	mapper     *kernel.Mapper
	err        error
	byKernel   map[string]ask
}

// ask is what is asked of one kernel, or why nothing can be; neither for a Module that loads nothing.
type ask struct {
	want    *status.Ask
	problem *status.Problem
}

// on returns what is asked of a kernel, by the version that the node reports. The result is shared.
func (a *asks) on(version string) (*status.Ask, *status.Problem) {
	if a.module.Spec.ModuleLoader == nil {
		return nil, nil
	}
	known, ok := a.byKernel[version]
	if !ok {
		known = a.resolve(version)
		a.byKernel[version] = known
	}
	return known.want, known.problem
}

func (a *asks) resolve(version string) ask {
	if a.err != nil {
		return unmapped(a.err.Error())
	}
	resolved, found, err := a.mapper.For(version)
	switch {
	case err != nil:
		return unmapped(err.Error())
	case !found:
		return unmapped("")
	}
	id, err := delivery.ID(a.module, &resolved.Config)
	if err != nil {
		return unmapped(err.Error())
	}
	return ask{want: &status.Ask{Config: resolved.Config, Delivery: id}}
}

func unmapped(message string) ask {
	return ask{problem: &status.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: message}}
}

// memory holds what every Module's current generation asks for.
type memory struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*asks
}

// of returns what a Module asks for. Only the pass of that Module uses the result; it keeps module.
func (m *memory) of(module *v1beta1.Module) *asks {
	key := client.ObjectKeyFromObject(module)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.known[key]; a != nil && a.uid == module.UID && a.generation == module.Generation {
		return a
	}
	a := &asks{uid: module.UID, generation: module.Generation, module: module, byKernel: map[string]ask{}}
	if loader := module.Spec.ModuleLoader; loader != nil {
		a.mapper, a.err = kernel.NewMapper(loader, module.Namespace, module.Name)
	}
	m.known[key] = a
	return a
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}
