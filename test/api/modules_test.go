// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestVariablesAgreeWithTheProgram: the policy admits exactly the templates that the operator can
// substitute.
func TestVariablesAgreeWithTheProgram(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	images := []string{
		"i:1", "i:$", "i:$1", "i:a$-b", "i:$$KERNEL_XYZ", "i:$$NOT_KNOWN", "i:${", "i:${}", "i:${KERNEL_XYZ", "i:${KERNEL_XYZ-x}",
		"i:$MOD_NAMESPACE-$MOD_NAME$KERNEL_X", "i:$MOD_NAME$NOT_KNOWN", "i:$KERNEL_XYZA", "i:$KERNEL_XYZ_1", "i:$kernel_xyz", "i:${MOD_NAME}x",
	}
	for _, name := range kernel.VariableNames() {
		images = append(images, "i:$"+name, "i:${"+name+"}", "i:x-$"+name+"-y", "i:${"+name+"}x", "i:$"+name+"x")
	}
	for _, image := range images {
		m := valid(func(m *v1beta1.Module) { container(m).KernelMappings[1].ContainerImage = image })
		m.Namespace = namespace
		_, want := kernel.NewMapper(m.Spec.ModuleLoader, namespace, m.Name)
		got := admin.Create(t.Context(), m, client.DryRunAll)
		if (want == nil) != (got == nil) {
			t.Errorf("image %q: the program says %v, the policy %v", image, want, got)
		}
	}
}

func TestNamesHaveToFitLabels(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for length, then := range map[int][]string{
		41 - len(namespace): nil,
		42 - len(namespace): {"metadata.name", "41 characters", "have 42"},
	} {
		m := valid()
		m.Namespace, m.Name = namespace, strings.Repeat("m", length)
		check(t, admin.Create(t.Context(), m), then...)
	}
}

// TestModuleNamesAreNames: modprobe would read them, and parameters, as options, or as further
// lines of its configuration. Any name that a kernel module can have is one.
func TestModuleNamesAreNames(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	const in, next = "spec.moduleLoader.container.modprobe.", "modprobe.args"
	refused := func(text, shown string, change func(*v1beta1.ModprobeSpec, string), field string) {
		t.Helper()
		m := valid(func(m *v1beta1.Module) { change(&container(m).Modprobe, text) })
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), in+field+": "+shown, next)
	}
	named := func(p *v1beta1.ModprobeSpec, name string) { p.ModuleName = name }
	second := func(p *v1beta1.ModprobeSpec, name string) { p.ModulesLoadingOrder = []string{p.ModuleName, name} }
	for name, shown := range map[string]string{
		"-C/x": `"-C/x"`, "-d": `"-d"`, "--": `"--"`, "nic debug=1": `"nic debug=1"`, "nic\ninstall nic id": `"nic\ninstall nic id"`,
		" nic": `" nic"`, "nic\t": `"nic\t"`, "nic\u202e": `"nic`,
	} {
		refused(name, shown, named, "moduleName")
		refused(name, shown, second, "modulesLoadingOrder[1]")
	}
	for _, text := range []string{"-d", "-d/x", "--dirname=/x"} {
		refused(text, `"`+text+`"`, func(p *v1beta1.ModprobeSpec, text string) { p.Parameters = []string{"mode=1", text} }, "parameters[1]")
	}
	for _, name := range []string{"nic", "snd-hda-intel", "8021q", "nf_tables", "_x", "char-major-10-200", "pci:v00008086d*"} {
		m := valid(func(m *v1beta1.Module) {
			p := &container(m).Modprobe
			p.ModuleName, p.ModulesLoadingOrder = name, []string{name, "base-x"}
			p.Parameters = []string{"mode=-1", `label="a -b"`, "lines=\"a\n-b\"", ""}
		})
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll))
	}
}

// TestVersionIsALabelValue: it becomes the value of a node label, which the API server would refuse
// later.
func TestVersionIsALabelValue(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for version, then := range map[string][]string{
		"": nil, "1": nil, "v1.2.3-rc.1": nil, "1_a": nil,
		"1.0+git": {"spec.moduleLoader.container.version"}, "-1": {"spec.moduleLoader.container.version"},
		"1.": {"spec.moduleLoader.container.version"}, "1 a": {"spec.moduleLoader.container.version"},
	} {
		m := valid(func(m *v1beta1.Module) { container(m).Version = version })
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
}

func TestVersionCannotAppearOrVanish(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	cases := []struct {
		before, after string
		then          []string
	}{
		{"", "1", []string{"spec.moduleLoader.container", "version"}},
		{"1", "", []string{"spec.moduleLoader.container", "version"}},
		{"1", "2", nil},
	}
	for i, tc := range cases {
		m := valid(func(m *v1beta1.Module) { container(m).Version = tc.before })
		m.Namespace, m.Name = namespace, fmt.Sprintf("v%d", i)
		if err := admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		container(m).Version = tc.after
		check(t, admin.Update(t.Context(), m), tc.then...)
	}
}

// TestRetryIsATime: what the operator would have to ignore is refused while somebody is looking.
func TestRetryIsATime(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	refused := []string{"drover.dev/retry", "RFC 3339"}
	for value, then := range map[string][]string{
		"2026-01-31T12:00:00Z": nil, "2026-12-01T23:59:59.123+02:00": nil,
		"": refused, "now": refused, "2026-01-31": refused, "2026-13-01T12:00:00Z": refused, "2026-01-31T12:00:00": refused,
		"2026-01-31T24:00:00Z": refused,
	} {
		m := valid(func(m *v1beta1.Module) { m.Annotations = map[string]string{v1beta1.RetryAnnotation: value} })
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
	m := valid()
	m.Namespace = namespace
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.RetryAnnotation, "soon")
	check(t, admin.Update(t.Context(), m.DeepCopy()), refused...)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.RetryAnnotation, "2026-01-31T12:00:00Z")
	check(t, admin.Update(t.Context(), m))
}

// TestGracePeriodIsADuration: one that Go cannot read would keep the operator from listing Modules
// at all.
func TestGracePeriodIsADuration(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	refused := []string{"spec.rollout.deselectGracePeriod"}
	for value, then := range map[string][]string{
		"5m": nil, "0s": nil, "1h30m0s": nil, "1.5h": nil, "99999h99999h99999h99999h": nil,
		"": refused, "x": refused, "5": refused, "-5m": refused, "1 day": refused, "100000h": refused,
	} {
		m := valid()
		m.Namespace = namespace
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("Module"))
		if err := unstructured.SetNestedField(object.Object, value, "spec", "rollout", "deselectGracePeriod"); err != nil {
			t.Fatal(err)
		}
		check(t, admin.Create(t.Context(), object, client.DryRunAll), then...)
		if _, err := time.ParseDuration(value); then == nil && err != nil {
			t.Error(err)
		}
	}
}

// TestClientsInGo: upstream's Go types have fields without omitempty, and vendors' operators set
// empty values. Empty means unset.
func TestClientsInGo(t *testing.T) {
	e := env.Get(t)
	const text = `{
	  "apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module", "metadata": {"name": "from-go", "creationTimestamp": null},
	  "spec": {
	    "selector": {}, "tolerations": [],
	    "moduleLoader": {
	      "serviceAccountName": "",
	      "container": {
	        "registryTLS": {}, "inTreeModulesToRemove": [], "inTreeModuleToRemove": "", "version": "",
	        "containerImage": "example.com/nic:1",
	        "kernelMappings": [{
	          "build": null, "sign": null, "containerImage": "", "literal": "6.1.0", "regexp": "", "registryTLS": null,
	          "inTreeModuleToRemove": "", "inTreeModulesToRemove": []
	        }, {"literal": "", "regexp": ".+", "containerImage": "example.com/nic:2"}],
	        "modprobe": {
	          "moduleName": "nic", "dirName": "", "firmwarePath": "", "parameters": [],
	          "args": {}, "rawArgs": {}, "modulesLoadingOrder": []
	        }
	      }
	    }
	  },
	  "status": {"devicePlugin": {}, "dra": {}, "moduleLoader": {}}
	}`
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetNamespace(e.Namespace(t))
	check(t, e.Admin(t).Create(t.Context(), object))
}

// TestLargestModule: the rules' cost must not refuse the largest Module that the schema allows.
func TestLargestModule(t *testing.T) {
	e := env.Get(t)
	m := valid(func(m *v1beta1.Module) {
		mappings := make([]v1beta1.KernelMapping, 512)
		for i := range mappings {
			mappings[i] = v1beta1.KernelMapping{
				Literal: fmt.Sprintf("6.1.%d-generic", i),
				// As long as such references are, of the 512 characters that are allowed.
				ContainerImage: "registry.example.com/" + strings.Repeat("vendor/", 10) + "nic:${KERNEL_FULL_VERSION}-${MOD_NAMESPACE}-$MOD_NAME",
			}
		}
		container(m).KernelMappings = mappings
	})
	m.Namespace = e.Namespace(t)
	check(t, e.Admin(t).Create(t.Context(), m))
}

// TestFinalizerOfAnInvalidModuleCanBeRemoved: a Module that an older policy let in can still be
// labelled, and deleted.
func TestFinalizerOfAnInvalidModuleCanBeRemoved(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	m := valid(func(m *v1beta1.Module) {
		container(m).KernelMappings[0].ContainerImage = "example.com/nic:$OLD_VARIABLE"
	})
	m.Namespace, m.Finalizers = e.Namespace(t), []string{v1beta1.ModuleFinalizer}

	// The binding goes for a moment, which is what an older policy would have been like.
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "drover-modules"}, binding); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is off", func(ctx context.Context) (bool, error) {
		return admin.Create(ctx, m) == nil, nil
	})
	again := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, Spec: binding.Spec}
	if err := admin.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	other := m.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: "other"}
	eventually(t, "the policy is on again", func(ctx context.Context) (bool, error) {
		return admin.Create(ctx, other.DeepCopy(), client.DryRunAll) != nil, nil
	})

	m.Labels = map[string]string{"example.com/owner": "me"}
	check(t, admin.Update(t.Context(), m))
	m.Spec.Selector = map[string]string{"another": "one"}
	check(t, admin.Update(t.Context(), m), "spec.moduleLoader.container.kernelMappings[0].containerImage")
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	m.Finalizers = nil
	check(t, admin.Update(t.Context(), m))
}

func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestRolloutFields: what would stop a rollout for ever, or mean nothing, is refused with the
// field's path. TestBuildResources: a build may be given what every node has, and nothing else.
func TestBuildResources(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for name, then := range map[corev1.ResourceName][]string{
		"cpu": nil, "memory": nil, "ephemeral-storage": nil,
		"nvidia.com/gpu": {"build.resources.limits", "must be of cpu, memory and ephemeral-storage"},
	} {
		m := valid(func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{
				DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"},
				Resources:           &v1beta1.BuildResources{Limits: corev1.ResourceList{name: resource.MustParse("1")}},
			}
		})
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
}

func TestRolloutFields(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	refused := []string{"spec.rollout.maxUnavailable"}
	for value, then := range map[intstr.IntOrString][]string{
		intstr.FromInt32(1): nil, intstr.FromInt32(100000): nil, intstr.FromString("1%"): nil, intstr.FromString("100%"): nil,
		intstr.FromInt32(0): refused, intstr.FromInt32(-1): refused, intstr.FromInt32(100001): refused,
		intstr.FromString("0%"): refused, intstr.FromString("101%"): refused, intstr.FromString("3"): refused, intstr.FromString("some"): refused,
	} {
		m := valid(func(m *v1beta1.Module) { m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &value} })
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
	for value, then := range map[v1beta1.DrainPolicy][]string{"": nil, "None": nil, "Holders": nil, "Node": nil,
		"Pods": {"spec.rollout.drain"}} {
		m := valid(func(m *v1beta1.Module) { m.Spec.Rollout = &v1beta1.RolloutSpec{Drain: value} })
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
	for name, tc := range map[string]struct {
		rollout v1beta1.RolloutSpec
		then    []string
	}{
		"with a drain": {v1beta1.RolloutSpec{Drain: "Node",
			DrainOptions: &v1beta1.DrainOptions{Force: true, WaitForCompletion: map[string]string{"a": "b"}}}, nil},
		"without a drain": {v1beta1.RolloutSpec{DrainOptions: &v1beta1.DrainOptions{Force: true}}, []string{"drainOptions need drain"}},
		"with none":       {v1beta1.RolloutSpec{Drain: "None", DrainOptions: &v1beta1.DrainOptions{}}, []string{"drainOptions need drain"}},
	} {
		m := valid(func(m *v1beta1.Module) { m.Spec.Rollout = &tc.rollout })
		m.Namespace = namespace
		t.Log(name)
		check(t, admin.Create(t.Context(), m, client.DryRunAll), tc.then...)
	}
	for value, then := range map[string][]string{"2026-01-31T12:00:00Z": nil, "3": {v1beta1.ConfirmDeselectionAnnotation, "RFC 3339"}} {
		m := valid(func(m *v1beta1.Module) {
			m.Annotations = map[string]string{v1beta1.ConfirmDeselectionAnnotation: value, v1beta1.RetryAnnotation: "2026-01-31T12:00:00Z"}
		})
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m, client.DryRunAll), then...)
	}
}
