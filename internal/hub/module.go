// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
)

const (
	// NameLabel on what a hub makes for a ManagedClusterModule. Same key as upstream.
	NameLabel = "kmm.node.kubernetes.io/managedclustermodule.name"
	// RevisionAnnotation on a spoke's Module is a hash of what the hub sent.
	RevisionAnnotation = "drover.dev/hub-revision"
	// DeclarationAnnotation is a hash of what was asked for, whatever the kernels: see [Makings].
	DeclarationAnnotation = "drover.dev/hub-declaration"
	// HubAnnotation on a spoke's Module is HUB/TRANSPORT/CLUSTER: two hubs may send to one cluster,
	// and one hub may know a cluster by two names.
	HubAnnotation = "drover.dev/hub"
)

// Whole is a ManagedClusterModule's Module as it would be on a spoke, with builds and signatures.
func Whole(m *hubv1beta1.ManagedClusterModule) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Spec.SpokeNamespace, Name: m.Name},
		Spec:       *m.Spec.ModuleSpec.DeepCopy(),
	}
}

// ForCluster is the Module of a cluster that runs some platforms, without builds and signatures;
// nil if none of them has a mapping. Where the hub makes images, each mapping is for a kernel that
// the cluster has reported, so that no node asks for an image before it is made, and names the
// image by digest, so that another build is another Module.
func ForCluster(m *hubv1beta1.ManagedClusterModule, platforms []Platform, pinned map[Platform]string, declaration string) (*v1beta1.Module,
	error) {
	module := Whole(m)
	module.TypeMeta = metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "Module"}
	module.Labels = map[string]string{NameLabel: m.Name}
	if loader := module.Spec.ModuleLoader; loader != nil {
		if makes(&loader.Container) {
			mappings, err := literals(module, platforms, pinned)
			if err != nil || len(mappings) == 0 {
				return nil, err
			}
			loader.Container.KernelMappings = mappings
		}
		strip(&loader.Container)
	}
	return module, revise(module, declaration)
}

// revise puts the annotations on that tell what a cluster's Module is.
func revise(module *v1beta1.Module, declaration string) error {
	revision, err := kube.Hash(struct {
		Namespace string
		Spec      any
	}{module.Namespace, module.Spec})
	if err != nil {
		return err
	}
	module.Annotations = map[string]string{RevisionAnnotation: revision, DeclarationAnnotation: declaration}
	return nil
}

// maxKept bounds the mappings of a cluster's Module with those of kernels that it reports no more.
const maxKept = 4 * MaxPlatforms

// Keep adds to what a cluster wants the mappings that it was sent for the same declaration, of
// kernels that it reports no more: a claim holds the kernels of most nodes only, and one that falls
// out of it may still run. Without its mapping, the cluster would unload there. A mapping that no
// node needs costs nothing, and goes with the next declaration. Of what the cluster has, the image
// alone is taken over.
func Keep(m *hubv1beta1.ManagedClusterModule, have, want *v1beta1.Module, reported []Platform) (*v1beta1.Module, error) {
	declaration := want.Annotations[DeclarationAnnotation]
	if have == nil || have.Annotations[DeclarationAnnotation] != declaration || have.Namespace != want.Namespace ||
		have.Spec.ModuleLoader == nil || want.Spec.ModuleLoader == nil || !makes(&m.Spec.ModuleSpec.ModuleLoader.Container) {
		return want, nil
	}
	known := map[string]bool{}
	for _, p := range reported {
		known[kernel.Trim(p.Kernel)] = true
	}
	whole := Whole(m)
	mapper, err := kernel.NewMapper(whole.Spec.ModuleLoader, whole.Namespace, whole.Name)
	if err != nil {
		return nil, fmt.Errorf("read the mappings: %w", err)
	}
	var kept []v1beta1.KernelMapping
	for _, sent := range have.Spec.ModuleLoader.Container.KernelMappings {
		resolved, found, err := mapper.For(sent.Literal, defaultArchitecture)
		if err != nil || !found || sent.Literal == "" || known[sent.Literal] {
			continue
		}
		mapping := whole.Spec.ModuleLoader.Container.KernelMappings[resolved.Mapping].DeepCopy()
		mapping.Literal, mapping.Regexp, mapping.ContainerImage = sent.Literal, "", sent.ContainerImage
		mapping.Build, mapping.Sign = nil, nil
		known[sent.Literal] = true
		kept = append(kept, *mapping)
	}
	if len(kept) == 0 {
		return want, nil
	}
	want = want.DeepCopy()
	mappings := &want.Spec.ModuleLoader.Container.KernelMappings
	slices.SortFunc(kept, func(a, b v1beta1.KernelMapping) int { return strings.Compare(b.Literal, a.Literal) })
	kept = kept[:min(len(kept), max(0, maxKept-len(*mappings)))] // of too many, the older kernels go
	*mappings = slices.Concat(*mappings, kept)
	return want, revise(want, declaration)
}

// Extends reports whether two Modules of a cluster differ only in kernels that one of them lacks:
// no node would load another build.
func Extends(have, want *v1beta1.Module) bool {
	if have.Annotations[DeclarationAnnotation] != want.Annotations[DeclarationAnnotation] {
		return false
	}
	if have.Annotations[RevisionAnnotation] == want.Annotations[RevisionAnnotation] {
		return true
	}
	if have.Namespace != want.Namespace || have.Spec.ModuleLoader == nil || want.Spec.ModuleLoader == nil {
		return false
	}
	known := map[string]*v1beta1.KernelMapping{}
	for i := range have.Spec.ModuleLoader.Container.KernelMappings {
		mapping := &have.Spec.ModuleLoader.Container.KernelMappings[i]
		known[mapping.Literal] = mapping
	}
	for i := range want.Spec.ModuleLoader.Container.KernelMappings {
		mapping := &want.Spec.ModuleLoader.Container.KernelMappings[i]
		if before := known[mapping.Literal]; before != nil && !equality.Semantic.DeepEqual(before, mapping) {
			return false
		}
	}
	return true
}

// Sender is the value of [HubAnnotation].
func Sender(hub, transport, cluster string) string { return hub + "/" + transport + "/" + cluster }

// From returns the Module with its sender.
func From(sender string, m *v1beta1.Module) *v1beta1.Module {
	m = m.DeepCopy()
	m.Annotations[HubAnnotation] = sender
	return m
}

// Of reports whether a Module was sent by a sender. One without is the next sender's.
func Of(m *v1beta1.Module, sender string) bool { return m.Annotations[HubAnnotation] == sender }

// OfAnother reports whether a Module was sent by another sender.
func OfAnother(m *v1beta1.Module, sender string) bool {
	return m.Annotations[HubAnnotation] != "" && !Of(m, sender)
}

func strip(c *v1beta1.ModuleLoaderContainerSpec) {
	c.Build, c.Sign = nil, nil
	for i := range c.KernelMappings {
		c.KernelMappings[i].Build, c.KernelMappings[i].Sign = nil, nil
	}
}

func makes(c *v1beta1.ModuleLoaderContainerSpec) bool {
	return c.Build != nil || c.Sign != nil ||
		slices.ContainsFunc(c.KernelMappings, func(k v1beta1.KernelMapping) bool { return k.Build != nil || k.Sign != nil })
}

// literals are the mappings for the kernels of platforms, each as the first one that matches it.
func literals(module *v1beta1.Module, platforms []Platform, pinned map[Platform]string) ([]v1beta1.KernelMapping, error) {
	mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
	if err != nil {
		return nil, fmt.Errorf("read the mappings: %w", err)
	}
	mappings, at := []v1beta1.KernelMapping{}, map[string]int{}
	for _, p := range platforms {
		resolved, found, err := mapper.For(p.Kernel, p.Architecture)
		if err != nil || !found {
			continue // the cluster reports which of its kernels has none
		}
		version := kernel.Trim(p.Kernel)
		if i, known := at[version]; known {
			if mappings[i].ContainerImage != pinned[p] {
				// one for each processor
				mappings[i].ContainerImage = module.Spec.ModuleLoader.Container.KernelMappings[resolved.Mapping].ContainerImage
			}
			continue
		}
		mapping := module.Spec.ModuleLoader.Container.KernelMappings[resolved.Mapping].DeepCopy()
		mapping.Literal, mapping.Regexp = version, ""
		if image := pinned[p]; image != "" {
			mapping.ContainerImage = image
		}
		at[version] = len(mappings)
		mappings = append(mappings, *mapping)
	}
	return mappings, nil
}
