// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
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
	known, versions := map[Platform]bool{}, map[string]bool{}
	for _, p := range reported {
		version := kernel.Trim(p.Kernel)
		known[Platform{Kernel: version, Architecture: p.Architecture}], versions[version] = true, true
	}
	whole := Whole(m)
	mapper, err := kernel.NewMapper(whole.Spec.ModuleLoader, whole.Namespace, whole.Name)
	if err != nil {
		return nil, fmt.Errorf("read the mappings: %w", err)
	}
	var kept []v1beta1.KernelMapping
	for _, sent := range have.Spec.ModuleLoader.Container.KernelMappings {
		of := Platform{Kernel: sent.Literal, Architecture: sent.Architecture}
		if sent.Literal == "" || known[of] || of.Architecture == "" && versions[of.Kernel] {
			continue
		}
		resolved, found, err := mapper.For(of.Kernel, cmp.Or(of.Architecture, defaultArchitecture))
		if err != nil || !found {
			continue
		}
		mapping := whole.Spec.ModuleLoader.Container.KernelMappings[resolved.Mapping].DeepCopy()
		mapping.Literal, mapping.Regexp, mapping.Architecture, mapping.ContainerImage = sent.Literal, "", sent.Architecture, sent.ContainerImage
		mapping.Build, mapping.Sign = nil, nil
		known[of] = true
		kept = append(kept, *mapping)
	}
	if len(kept) == 0 {
		return want, nil
	}
	want = want.DeepCopy()
	mappings := &want.Spec.ModuleLoader.Container.KernelMappings
	*mappings = apart(*mappings, kept, reported)
	slices.SortFunc(kept, func(a, b v1beta1.KernelMapping) int {
		return cmp.Or(strings.Compare(b.Literal, a.Literal), strings.Compare(a.Architecture, b.Architecture))
	})
	kept = kept[:min(len(kept), max(0, maxKept-len(*mappings)))] // of too many, the older kernels go
	*mappings = slices.Concat(*mappings, kept)
	return want, revise(want, declaration)
}

// apart names the processors of mappings for all of them, where one that is kept is for another one
// with the same kernel version: the first mapping that matches wins.
func apart(mappings, kept []v1beta1.KernelMapping, reported []Platform) []v1beta1.KernelMapping {
	var all []v1beta1.KernelMapping
	for _, mapping := range mappings {
		besides := func(k v1beta1.KernelMapping) bool { return k.Literal == mapping.Literal }
		if mapping.Architecture != "" || !slices.ContainsFunc(kept, besides) {
			all = append(all, mapping)
			continue
		}
		for _, p := range reported {
			if kernel.Trim(p.Kernel) == mapping.Literal {
				of := *mapping.DeepCopy()
				of.Architecture = p.Architecture
				all = append(all, of)
			}
		}
	}
	return all
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
	for i := range have.Spec.ModuleLoader.Container.KernelMappings {
		if !continued(&have.Spec.ModuleLoader.Container.KernelMappings[i], want.Spec.ModuleLoader.Container.KernelMappings) {
			return false
		}
	}
	return true
}

// continued reports whether the nodes that a mapping was made for load the same by the next ones,
// if these have their kernel. One that names no processor was made for one of those that they name:
// no other could load its image.
func continued(before *v1beta1.KernelMapping, next []v1beta1.KernelMapping) bool {
	gone := true
	for i := range next {
		n := next[i]
		if n.Literal != before.Literal || n.Architecture != "" && before.Architecture != "" && n.Architecture != before.Architecture {
			continue
		}
		n.Architecture = before.Architecture
		if equality.Semantic.DeepEqual(before, &n) {
			return true
		}
		gone = false
	}
	return gone
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
// They name processors where several have one kernel version and load different images by it: then
// no processor's nodes change because of another's.
func literals(module *v1beta1.Module, platforms []Platform, pinned map[Platform]string) ([]v1beta1.KernelMapping, error) {
	mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
	if err != nil {
		return nil, fmt.Errorf("read the mappings: %w", err)
	}
	var versions []string
	of, known := map[string][]mapped{}, map[Platform]bool{}
	for _, p := range platforms {
		resolved, found, err := mapper.For(p.Kernel, p.Architecture)
		if err != nil || !found {
			continue // the cluster reports which of its kernels has none
		}
		version := kernel.Trim(p.Kernel)
		if trimmed := (Platform{Kernel: version, Architecture: p.Architecture}); known[trimmed] {
			continue
		} else if known[trimmed] = true; of[version] == nil {
			versions = append(versions, version)
		}
		mapping := module.Spec.ModuleLoader.Container.KernelMappings[resolved.Mapping].DeepCopy()
		mapping.Literal, mapping.Regexp, mapping.ContainerImage = version, "", cmp.Or(pinned[p], mapping.ContainerImage)
		of[version] = append(of[version], mapped{p.Architecture, mapping})
	}
	mappings := []v1beta1.KernelMapping{}
	for _, version := range versions {
		mappings = append(mappings, joined(of[version])...)
	}
	return mappings, nil
}

// mapped is a mapping for one kernel version and the nodes of one processor.
type mapped struct {
	architecture string
	mapping      *v1beta1.KernelMapping
}

// joined are the mappings of one kernel version: one, if all processors load the same.
func joined(all []mapped) []v1beta1.KernelMapping {
	first := *all[0].mapping
	if !slices.ContainsFunc(all, func(m mapped) bool { return !equality.Semantic.DeepEqual(*m.mapping, first) }) {
		return []v1beta1.KernelMapping{first}
	}
	var each []v1beta1.KernelMapping
	for _, m := range all {
		m.mapping.Architecture = m.architecture
		each = append(each, *m.mapping)
	}
	return each
}
