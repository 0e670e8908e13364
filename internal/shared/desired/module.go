// SPDX-License-Identifier: Apache-2.0

// Package desired says what a Module wants of nodes: which image by which mapping, whether it is
// made, and each node's part of the rollout. It is pure, and the one answer for orders, for the
// status, and for the command line tool.
package desired

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Module is one compiled generation of a Module. It computes what it wants once per kernel, and is
// not safe for concurrent use.
type Module struct {
	module *v1beta1.Module
	mapper *kernel.Mapper
	err    error
	known  map[kernel.Platform]Answer
}

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
	// Err is why nobody can say what is wanted. A node keeps what it has then.
	Err error
	// Image is the one that is made in the cluster, or nil.
	Image *Image
	// declared is the input of that image, and undeclared why there is none.
	declared   *v1alpha1.ModuleImageSpec
	undeclared error
}

// New compiles a Module's mappings. It keeps m.
func New(m *v1beta1.Module) *Module {
	d := &Module{module: m, known: map[kernel.Platform]Answer{}}
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
	key := kernel.Platform{Kernel: version, Architecture: arch}
	known, ok := d.known[key]
	if !ok {
		known = d.resolve(version, arch)
		remember(d.known, key, known)
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
	a := Answer{State: &State{Config: resolved.Config, Mapping: resolved.Mapping, Delivery: id}}
	a.declared, a.undeclared = pipeline.Declare(d.module, &resolved, arch)
	return a
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

// Image is one that is built or signed in the cluster, for one kernel and processor.
type Image struct {
	// Reference is what it is pushed to.
	Reference string
	// Kernel and Architecture that it is for.
	Kernel, Architecture string
	// Problem is why it is not there, or nil.
	Problem *reasons.Problem
	// GivenUp: nothing is tried again until something changes.
	GivenUp bool
}

// Images are what is known of a Module's images.
type Images struct {
	// Makes: images are built and signed in the cluster.
	Makes bool
	// Made are the Module's.
	Made []v1alpha1.ModuleImage
	// Problem is why one cannot even be begun, or nil.
	Problem *reasons.Problem
}

// Fleet tells what a Module wants of nodes as its images stand. It is not safe for concurrent use.
type Fleet struct {
	module *Module
	images Images
	known  map[kernel.Platform]Answer
}

// With is the Module with its images as they stand.
func (d *Module) With(images Images) *Fleet {
	return &Fleet{module: d, images: images, known: map[kernel.Platform]Answer{}}
}

// On is what is wanted of a node. The input of an image made in the cluster is part of its
// identity.
func (f *Fleet) On(node *corev1.NodeSystemInfo) Answer {
	key, err := kernel.PlatformOf(node)
	if err != nil && key.Kernel != "" && f.module.mapper != nil {
		return Answer{Err: err} // not remembered: a node can invent any number of such names
	}
	a := f.module.On(key.Kernel, key.Architecture)
	if a.State == nil || !f.images.Makes || a.declared == nil && a.undeclared == nil {
		return a
	}
	known, ok := f.known[key]
	if !ok {
		known = f.made(a, key)
		remember(f.known, key, known)
	}
	return known
}

func (f *Fleet) made(a Answer, p kernel.Platform) Answer {
	a.Image = &Image{Reference: a.State.Config.ContainerImage, Kernel: p.Kernel, Architecture: p.Architecture}
	if a.undeclared != nil {
		a.Image.Problem = &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: a.undeclared.Error()}
		return a
	}
	found := pipeline.Ask(f.images.Made, a.declared)
	switch {
	case found.Unknown && f.images.Problem != nil:
		a.Image.Problem = f.images.Problem
	case found.Reason != "":
		a.Image.Problem, a.Image.GivenUp = &reasons.Problem{Reason: found.Reason, Message: found.Message}, found.GivenUp
	}
	if found.Hash == "" {
		return a
	}
	id, err := delivery.ID(f.module.module, &a.State.Config, found.Hash)
	if err != nil {
		return Answer{Err: err}
	}
	of := *a.State
	of.Delivery, of.Pull = id, found.Reference
	a.State = &of
	return a
}

// Made says how the image is made in the cluster: whether it is built, and what is signed for it.
func (a *Answer) Made() (builds bool, unsigned string) {
	if a.declared == nil {
		return false, ""
	}
	if a.declared.Sign != nil {
		unsigned = a.declared.Sign.UnsignedImage
	}
	return a.declared.Build != nil, unsigned
}

// Missing is why the image that a node needs is not made; nil: it is, or the node holds it.
func (a *Answer) Missing(holds func(delivery string) bool) *reasons.Problem {
	if a.Image == nil || a.Image.Problem == nil || a.State == nil || holds(a.State.Delivery) {
		return nil
	}
	return a.Image.Problem
}

// Part is a node's part of the rollout of m, of which a is wanted there; false: it has none. Of the
// facts, Config, Delivery, OnReboot, Unknown and Tainted are found here, all others by the caller.
func Part(m *v1beta1.Module, a *Answer, taints placement.UnloadTaints, f rollout.Facts) (rollout.Node, bool) {
	follows := f.Order != nil || f.Live != nil
	f.Tainted = taints.Asks(m, f.Node) != nil
	switch wanted := taints.Wanted(m, f.Node, follows); {
	case wanted && a.State != nil:
		f.Config, f.Delivery = &a.State.Config, a.State.Delivery
		f.OnReboot = m.Spec.ModuleLoader.Container.UnloadPolicy == v1beta1.UnloadOnReboot
		// Before its startup taint goes, no pod uses the node.
		f.Replaces = len(kernel.InTreeModules(f.Config)) > 0 && !placement.Starting(m, f.Node)
		// Without its image, it can take no turn.
		f.Paused = f.Paused || a.Missing(f.Holds) != nil
	case !follows && (a.State == nil || !taints.KeepOut(m, f.Node)):
		return rollout.Node{}, false
	case wanted && a.Err != nil:
		f.Unknown = true
	}
	return rollout.Observe(&f), true
}

// maxRemembered is how many kernels are remembered per Module. A node that reports another version
// with each heartbeat must not make the operator grow.
const maxRemembered = 256

// remember keeps what was found for a kernel, and empties a full map first.
func remember[K comparable, V any](known map[K]V, key K, value V) {
	if len(known) >= maxRemembered {
		clear(known)
	}
	known[key] = value
}
