// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/reasons"
)

// orders are the entries that one generation of a Module asks for, by kernel. They are computed once per kernel: nodes
// are many, kernels few.
type orders struct {
	uid        types.UID
	generation int64
	module     *v1beta1.Module
	mapper     *kernel.Mapper
	err        error
	byKernel   map[string]order
	// declared are the images to make, by kernel and architecture.
	declared *pipeline.Declarations
}

// order is what to load on one kernel.
type order struct {
	// entry with the delivery's id, without a carrier. Shared: copy before changing.
	entry *v1beta1.NodeModuleSpec
	// mapping is the index of the kernel mapping.
	mapping int
	// found is false when no mapping matches the kernel.
	found bool
	// image to pull instead of the entry's, for one that is made in the cluster.
	image string
	// problem is why that is not there; nil: it is, or is none of those.
	problem *reasons.Problem
	// err is set when the Module cannot be resolved for this kernel. What the node has is kept then.
	err error
}

// mappings remembers the orders of every Module's current generation.
type mappings struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*orders
}

func newMappings() *mappings { return &mappings{known: map[types.NamespacedName]*orders{}} }

// of returns the orders of a Module, compiling its mappings when its generation is new. m must have a moduleLoader.
// Only the pass of that Module uses the result.
func (c *mappings) of(m *v1beta1.Module) *orders {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	if o := c.known[key]; o != nil && o.uid == m.UID && o.generation == m.Generation {
		return o
	}
	o := &orders{uid: m.UID, generation: m.Generation, module: m.DeepCopy(), byKernel: map[string]order{}}
	o.declared = pipeline.NewDeclarations(o.module)
	o.mapper, o.err = kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	c.known[key] = o
	return o
}

func (c *mappings) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// on returns the order for a kernel and processor, as the node reports them.
func (o *orders) on(version, arch string) order {
	if o.err != nil {
		return order{err: o.err}
	}
	key := version + "/" + arch
	known, ok := o.byKernel[key]
	if !ok {
		known = o.resolve(version, arch)
		kernel.Remember(o.byKernel, key, known)
	}
	return known
}

func (o *orders) resolve(version, arch string) order {
	resolved, found, err := o.mapper.For(version, arch)
	if err != nil {
		return order{err: fmt.Errorf("resolve for kernel %s: %w", version, err)}
	}
	if !found {
		return order{}
	}
	id, err := delivery.ID(o.module, &resolved.Config, "")
	if err != nil {
		return order{err: err}
	}
	m := o.module
	return order{found: true, mapping: resolved.Mapping, entry: &v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{
			Namespace:          m.Namespace,
			Name:               m.Name,
			ServiceAccountName: delivery.ServiceAccount(m),
			ImageRepoSecret:    m.Spec.ImageRepoSecret,
			Tolerations:        m.Spec.Tolerations,
			Version:            m.Spec.ModuleLoader.Container.Version,
		},
		Config:          resolved.Config,
		Delivery:        &v1beta1.Delivery{ID: id},
		UnloadPolicy:    m.Spec.ModuleLoader.Container.UnloadPolicy,
		BlacklistInTree: m.Spec.ModuleLoader.Container.BlacklistInTree,
		ReadyWhen:       checksOnNode(m.Spec.ModuleLoader.Container.ReadyWhen),
	}}
}

// checksOnNode are the checks that the node's agent makes; commands run in the plugin's pod.
func checksOnNode(all []v1beta1.ReadyCheck) []v1beta1.ReadyCheck {
	var checks []v1beta1.ReadyCheck
	for i := range all {
		if len(all[i].Command) == 0 {
			checks = append(checks, all[i])
		}
	}
	return checks
}
