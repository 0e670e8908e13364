// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/definition"
)

// Helm keeps what has this annotation.
const keepAnnotation, keep = "helm.sh/resource-policy", "keep"

var (
	// used are the definitions that Drover has, too: with one of them go all its objects. The hub's
	// is of a group whose name ends as that of KMM.
	used = append(slices.Clone(definition.Names), "managedclustermodules."+hubv1beta1.GroupVersion.Group)
	// kmmAlone are those whose objects are of use to nobody but KMM.
	kmmAlone = []string{"moduleimagesconfigs." + v1beta1.GroupVersion.Group, "modulebuildsignconfigs." + v1beta1.GroupVersion.Group}
)

// Definition is a CustomResourceDefinition of KMM's groups.
type Definition struct {
	Name           string
	Ours           bool // Drover has one of that name, too
	Served, Stored []string
	Converts       bool     // by a webhook
	Owners         []string // field managers that an apply of Drover's would conflict with
	Release        string   // Helm's, namespace/name
	Kept           bool     // by Helm
}

// describe says of a definition what matters here.
func describe(crd *unstructured.Unstructured) Definition {
	d := Definition{
		Name: crd.GetName(), Ours: slices.Contains(used, crd.GetName()), Release: releaseOf(crd),
		Kept: crd.GetAnnotations()[keepAnnotation] == keep,
	}
	// Errors: the API server has checked the shape.
	d.Stored, _, _ = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	d.Converts = strategy == "Webhook"
	for _, each := range versions {
		if version, ok := each.(map[string]any); ok && version["served"] == true {
			if name, ok := version["name"].(string); ok {
				d.Served = append(d.Served, name)
			}
		}
	}
	if d.Ours && definition.Misfit(crd) != "" {
		d.Owners = owners(crd)
	}
	return d
}

// owners are the field managers of what a definition says, but for ours and kubectl's own apply.
func owners(crd *unstructured.Unstructured) []string {
	var found []string
	for _, entry := range crd.GetManagedFields() {
		if foreign(entry) && !slices.Contains(found, entry.Manager) {
			found = append(found, entry.Manager)
		}
	}
	slices.Sort(found)
	return found
}

func foreign(entry metav1.ManagedFieldsEntry) bool {
	mine := entry.Manager == manager || entry.Manager == "kubectl" && entry.Operation == metav1.ManagedFieldsOperationApply
	return !mine && entry.Subresource == "" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`)
}

// free changes a definition so that anybody can apply Drover's over it, no webhook is asked, and
// Helm keeps it. It reports whether it had to. Conversion is replaced as a whole: an apply that
// says strategy None would leave the webhook in place, which the API server refuses.
func free(crd *unstructured.Unstructured) (changed bool, err error) {
	d := describe(crd)
	if d.Converts {
		if err := unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
			return false, err //nolint:wrapcheck // the caller names the definition
		}
	}
	if d.Release != "" && !d.Kept {
		annotations := crd.GetAnnotations()
		annotations[keepAnnotation] = keep
		crd.SetAnnotations(annotations)
	}
	if len(d.Owners) > 0 {
		left := slices.DeleteFunc(crd.GetManagedFields(), foreign)
		if len(left) == 0 {
			// The API server takes an empty list for no change, and one empty entry for nobody.
			left = []metav1.ManagedFieldsEntry{{}}
		}
		crd.SetManagedFields(left)
	}
	return d.Converts || d.Release != "" && !d.Kept || len(d.Owners) > 0, nil
}

func (a *api) lookDefinitions(ctx context.Context, f *Found) error {
	all, err := a.kmmDefinitions(ctx)
	if err != nil {
		return err
	}
	var released []string
	for i := range all {
		d := describe(&all[i])
		f.Definitions = append(f.Definitions, d)
		if d.Release != "" && !slices.Contains(released, d.Release) {
			released = append(released, d.Release)
		}
	}
	for _, r := range released {
		namespace, name, _ := strings.Cut(r, "/")
		release, err := a.release(ctx, namespace, name)
		if err != nil {
			return err
		}
		f.Releases = append(f.Releases, release.Release)
	}
	return nil
}

// kmmDefinitions reads the definitions of KMM's groups, with the hub's.
func (a *api) kmmDefinitions(ctx context.Context) ([]unstructured.Unstructured, error) {
	all, err := a.list(ctx, definitions, metav1.ListOptions{})
	return slices.DeleteFunc(all, func(crd unstructured.Unstructured) bool {
		return !strings.HasSuffix(crd.GetName(), "."+v1beta1.GroupVersion.Group)
	}), err
}

// lookModules reads Modules and the NodeModulesConfigs of nodes.
func (a *api) lookModules(ctx context.Context, f *Found) error {
	found, err := a.list(ctx, modules, metav1.ListOptions{})
	if err != nil {
		return err
	}
	typed, err := each[v1beta1.Module](found)
	if err != nil {
		return err
	}
	f.Modules = len(typed)
	for _, m := range typed {
		builds, maps := makes(m)
		if builds {
			f.Building = append(f.Building, m.Namespace+"/"+m.Name)
		}
		toolkit, err := a.usesToolkit(ctx, m.Namespace, maps)
		if err != nil {
			return err
		}
		if toolkit {
			f.Toolkit = append(f.Toolkit, m.Namespace+"/"+m.Name)
		}
	}
	configs, err := a.list(ctx, nodeModules, metav1.ListOptions{})
	f.Configs = len(configs)
	for i := range configs {
		loaded, _, _ := unstructured.NestedSlice(configs[i].Object, "status", "modules")
		f.Loaded += len(loaded)
	}
	return err
}

// makes reports whether a Module has images built or signed, and where its Dockerfiles are.
func makes(m *v1beta1.Module) (builds bool, maps []string) {
	if m.Spec.ModuleLoader == nil {
		return false, nil
	}
	c := &m.Spec.ModuleLoader.Container
	see := func(build *v1beta1.Build, sign *v1beta1.Sign) {
		builds = builds || build != nil || sign != nil
		if build != nil && build.DockerfileConfigMap != nil && !slices.Contains(maps, build.DockerfileConfigMap.Name) {
			maps = append(maps, build.DockerfileConfigMap.Name)
		}
	}
	see(c.Build, c.Sign)
	for i := range c.KernelMappings {
		see(c.KernelMappings[i].Build, c.KernelMappings[i].Sign)
	}
	return builds, maps
}

// usesToolkit reports whether a Dockerfile uses what Red Hat's edition of KMM fills in.
func (a *api) usesToolkit(ctx context.Context, namespace string, maps []string) (bool, error) {
	for _, name := range maps {
		object, err := a.get(ctx, configMaps, namespace, name)
		if err != nil {
			return false, err
		}
		if object == nil {
			continue
		}
		m, err := as[corev1.ConfigMap](object)
		if err != nil {
			return false, err
		}
		if strings.Contains(m.Data["dockerfile"], "DTK_AUTO") {
			return true, nil
		}
	}
	return false, nil
}
