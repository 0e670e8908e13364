// SPDX-License-Identifier: Apache-2.0

// Package desired says what a Module wants of nodes: which image by which mapping, whether it is
// made, and each node's part of the rollout. It is pure, and the one answer for orders, for the
// status, and for the command line tool.
package desired

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// Module is one compiled generation of a Module. It computes what it wants once per kernel, and is
// not safe for concurrent use.
type Module struct {
	module   *v1beta1.Module
	mapper   *kernel.Mapper
	err      error
	known    map[platform]Answer
	declared *pipeline.Declarations
}

// platform is a kernel's version and the processor, as a node reports them.
type platform struct{ kernel, arch string }

// State is what a Module wants of nodes with one kernel and processor.
type State struct {
	// Config is the Module resolved for the kernel.
	Config v1beta1.ModuleConfig
	// Mapping is the index of the kernel mapping that matched.
	Mapping int
	// Delivery is the identity of what the image has to bring.
	Delivery string
	// Pull is an image made in the cluster, by digest; empty: Config's image.
	Pull string
}

// Answer is what a Module wants of a node. It is shared: nobody may change what it points to.
type Answer struct {
	// State is nil if the Module loads nothing, no mapping matches the kernel, or there is an Err.
	State *State
	// Err is why it cannot be told what is wanted. A node keeps what it has then.
	Err error
	// Image is the one that is made in the cluster, or nil.
	Image *Image
}

// New compiles a Module's mappings. It keeps m.
func New(m *v1beta1.Module) *Module {
	d := &Module{module: m, known: map[platform]Answer{}, declared: pipeline.NewDeclarations(m)}
	if loader := m.Spec.ModuleLoader; loader != nil {
		d.mapper, d.err = kernel.NewMapper(loader, m.Namespace, m.Name)
	}
	return d
}

// Is reports whether this is the Module as it is now.
func (d *Module) Is(m *v1beta1.Module) bool {
	return d.module.UID == m.UID && d.module.Generation == m.Generation
}

// On is what is wanted of a kernel and processor, as the node reports them, whoever makes images.
func (d *Module) On(version, arch string) Answer {
	switch {
	case d.err != nil:
		return Answer{Err: d.err}
	case d.mapper == nil:
		return Answer{}
	}
	key := platform{version, arch}
	known, ok := d.known[key]
	if !ok {
		known = d.resolve(version, arch)
		kernel.Remember(d.known, key, known)
	}
	return known
}

func (d *Module) resolve(version, arch string) Answer {
	resolved, found, err := d.mapper.For(version, arch)
	if err != nil || !found {
		return Answer{Err: err}
	}
	id, err := delivery.ID(d.module, &resolved.Config, "")
	if err != nil {
		return Answer{Err: err}
	}
	return Answer{State: &State{Config: resolved.Config, Mapping: resolved.Mapping, Delivery: id}}
}

// Memory holds every Module's current generation. It is safe for concurrent use; its results are
// not.
type Memory struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*Module
}

// Of is a Module as it is now, compiled when its generation is new. It keeps m.
func (c *Memory) Of(m *v1beta1.Module) *Module {
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.known[key]; d != nil && d.Is(m) {
		return d
	}
	if c.known == nil {
		c.known = map[types.NamespacedName]*Module{}
	}
	c.known[key] = New(m)
	return c.known[key]
}

// Forget a Module that is gone.
func (c *Memory) Forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}
