// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// WantedBy is how a ManagedClusterModule stands in a ModuleImage's wantedBy.
func WantedBy(name string) string { return "ManagedClusterModule/" + name }

// Asked reports whether a ManagedClusterModule wants an image: then the hub makes it.
func Asked(image *v1alpha1.ModuleImage) bool {
	return slices.ContainsFunc(image.Spec.WantedBy, func(by string) bool { return strings.HasPrefix(by, WantedBy("")) })
}

// Makings are the images that the hub has to make for a ManagedClusterModule.
type Makings struct {
	// Specs by the names of their ModuleImages.
	Specs map[string]*v1alpha1.ModuleImageSpec
	// For are the names of platforms' ModuleImages; none: the image is made elsewhere.
	For map[Platform]string
	// Problems say why a platform cannot be served.
	Problems map[Platform]reasons.Problem
	// Wrong is why the mappings cannot be read; nil: they can.
	Wrong *reasons.Problem
	// Declaration is a hash of what is asked for and what is built from, whatever kernels there are.
	Declaration string
}

// MakingsOf are the images for the platforms of all clusters, each once. They are made in the hub's
// namespace, with its Secrets and ConfigMaps, but their variables have the spoke's namespace.
func MakingsOf(m *hubv1beta1.ManagedClusterModule, platforms []Platform, namespace, builder string,
	sources map[string]*corev1.ConfigMap) (*Makings, error) {
	made := &Makings{Specs: map[string]*v1alpha1.ModuleImageSpec{}, For: map[Platform]string{}, Problems: map[Platform]reasons.Problem{}}
	module := Whole(m)
	module.Spec.Selector = nil // it chooses nodes of spokes: the hub's have other labels
	var err error
	if made.Declaration, err = declaration(m, sources); err != nil || module.Spec.ModuleLoader == nil {
		return made, err
	}
	mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
	if err != nil {
		made.Wrong = &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: err.Error()}
		return made, nil
	}
	for _, p := range platforms {
		resolved, found, err := mapper.For(p.Kernel, p.Architecture)
		switch {
		case err != nil:
			made.Problems[p] = reasons.Problem{Reason: kernel.Reason(err), Message: err.Error()}
			continue
		case !found:
			continue
		}
		spec, err := pipeline.Declare(module, &resolved, p.Architecture)
		if err == nil && spec != nil {
			err = pipeline.Complete(namespace, spec, sources[pipeline.Source(spec)], builder)
		}
		switch {
		case err != nil:
			made.Problems[p] = reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: err.Error()}
		case spec != nil:
			spec.WantedBy = []string{WantedBy(m.Name)}
			if asked := placement.RetryAsked(m); !asked.IsZero() {
				spec.Retry = &metav1.Time{Time: asked.UTC().Truncate(time.Second)}
			}
			name := pipeline.Name(spec)
			made.Specs[name], made.For[p] = spec, name
		}
	}
	return made, nil
}

// Postpone removes the images that only waiting platforms need.
func (m *Makings) Postpone(waits func(Platform) bool) {
	now := map[string]bool{}
	for p, name := range m.For {
		now[name] = now[name] || !waits(p)
	}
	for name := range m.Specs {
		if !now[name] {
			delete(m.Specs, name)
		}
	}
}

func declaration(m *hubv1beta1.ManagedClusterModule, sources map[string]*corev1.ConfigMap) (string, error) {
	type content struct {
		Data   map[string]string
		Binary map[string][]byte
	}
	from := map[string]content{}
	for name, source := range sources {
		from[name] = content{source.Data, source.BinaryData}
	}
	return kube.Hash(struct {
		Spec any
		From map[string]content
	}{m.Spec.ModuleSpec, from})
}
