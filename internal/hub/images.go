// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/placement"
)

// WantedBy is how a ManagedClusterModule stands in a ModuleImage's wantedBy.
func WantedBy(name string) string { return "ManagedClusterModule/" + name }

// Makings are the images that the hub has to make for a ManagedClusterModule.
type Makings struct {
	// Specs by the names of their ModuleImages.
	Specs map[string]*v1alpha1.ModuleImageSpec
	// For are the names of the ModuleImages of a platform's image; none: it is made elsewhere.
	For map[Platform]string
	// Problems say why an image cannot be declared.
	Problems map[Platform]string
	// Unmapped platforms have no mapping.
	Unmapped map[Platform]bool
}

// MakingsOf are the images for the platforms of all clusters, each once. They are made in the hub's own namespace, where their Secrets and ConfigMaps are,
// with the names that they have on spokes: variables have the spoke's namespace.
func MakingsOf(m *hubv1beta1.ManagedClusterModule, platforms []Platform, namespace, builder string, sources map[string]*corev1.ConfigMap) (*Makings, error) {
	made := &Makings{Specs: map[string]*v1alpha1.ModuleImageSpec{}, For: map[Platform]string{}, Problems: map[Platform]string{}, Unmapped: map[Platform]bool{}}
	module := Whole(m)
	if module.Spec.ModuleLoader == nil {
		return made, nil
	}
	mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
	if err != nil {
		return nil, err
	}
	for _, p := range platforms {
		resolved, found, err := mapper.For(p.Kernel, p.Architecture)
		switch {
		case err != nil:
			made.Problems[p] = err.Error()
			continue
		case !found:
			made.Unmapped[p] = true
			continue
		}
		spec, err := pipeline.Declare(module, &resolved, p.Architecture)
		if err == nil && spec != nil {
			err = pipeline.Complete(namespace, spec, sources[pipeline.Source(spec)], builder)
		}
		switch {
		case err != nil:
			made.Problems[p] = err.Error()
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
