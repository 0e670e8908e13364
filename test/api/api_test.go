// SPDX-License-Identifier: Apache-2.0

// Package api_test holds the tests of what the API server admits: the rules of the CRDs and of the
// admission policies.
package api_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// valid is a Module that the API server accepts, changed.
func valid(change ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/nic": "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				KernelMappings: []v1beta1.KernelMapping{
					{Literal: "6.1.0", ContainerImage: "example.com/nic:6.1.0"},
					{Regexp: "^6\\.", ContainerImage: "example.com/nic:$KERNEL_VERSION"},
				},
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
			}},
		},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func container(m *v1beta1.Module) *v1beta1.ModuleLoaderContainerSpec {
	return &m.Spec.ModuleLoader.Container
}

func local(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

func sign(files ...string) *v1beta1.Sign {
	return &v1beta1.Sign{KeySecret: local("key"), CertSecret: local("cert"), FilesToSign: files}
}

// check fails unless err is nil, or names what it has to.
func check(t *testing.T, err error, want ...string) {
	t.Helper()
	switch {
	case len(want) == 0 && err != nil:
		t.Errorf("refused: %v", err)
	case len(want) > 0 && err == nil:
		t.Errorf("accepted, want an error with %q", want)
	}
	for _, part := range want {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

type moduleCase struct {
	given func(*v1beta1.Module)
	// then are parts of the error; none: accepted.
	then []string
}

// TestModuleAdmission creates each Module, and updates an accepted one to it: what is refused is
// refused both ways.
func TestModuleAdmission(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for _, cases := range []map[string]moduleCase{mappingCases(), inTreeCases(), modprobeCases(), pluginCases(), policyCases(), readyCases()} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				created := valid(tc.given)
				created.Namespace, created.Name, created.GenerateName = namespace, "", "c-"
				check(t, admin.Create(t.Context(), created), tc.then...)

				updated := valid()
				updated.Namespace, updated.Name, updated.GenerateName = namespace, "", "u-"
				if err := admin.Create(t.Context(), updated); err != nil {
					t.Fatal(err)
				}
				tc.given(updated)
				check(t, admin.Update(t.Context(), updated), tc.then...)
			})
		}
	}
}

func mappingCases() map[string]moduleCase {
	const mappings = "spec.moduleLoader.container.kernelMappings"
	return map[string]moduleCase{
		"as it is": {given: func(*v1beta1.Module) {}},
		"case 1: regexp and literal": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[1].Literal = "6.2.0" },
			then:  []string{mappings + "[1]", "mutually exclusive"},
		},
		"case 2: neither": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[0].Literal = "" },
			then:  []string{mappings + "[0]", "exactly one of regexp and literal"},
		},
		"case 3: invalid regexp": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[1].Regexp = "(" },
			then:  []string{mappings + "[1].regexp", "missing closing )"},
		},
		"no mapping": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings = nil },
			then:  []string{mappings},
		},
		"an image without a tag": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[0].ContainerImage = "registry:5000/nic" },
			then:  []string{mappings + "[0].containerImage", "tag or a digest"},
		},
		"an image with a digest": {
			given: func(m *v1beta1.Module) {
				container(m).KernelMappings[0].ContainerImage = "registry:5000/nic@sha256:" + strings.Repeat("a", 64)
			},
		},
		"a common image without a tag": {
			given: func(m *v1beta1.Module) { container(m).ContainerImage = "example.com/nic" },
			then:  []string{"spec.moduleLoader.container.containerImage", "tag or a digest"},
		},
		"no image at all": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[0].ContainerImage = "" },
			then:  []string{"spec.moduleLoader.container", "containerImage"},
		},
		"the common image": {
			given: func(m *v1beta1.Module) {
				container(m).KernelMappings[0].ContainerImage = ""
				container(m).ContainerImage = "example.com/nic:1"
			},
		},
		"case 10: no moduleLoader": {given: func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil }},
	}
}

func inTreeCases() map[string]moduleCase {
	const in = "spec.moduleLoader.container"
	list := []string{"a"}
	return map[string]moduleCase{
		"case 5: both in the container": {
			given: func(m *v1beta1.Module) {
				container(m).InTreeModulesToRemove, container(m).InTreeModuleToRemove = list, "a"
			},
			then: []string{in, "mutually exclusive"},
		},
		"case 5: both in a mapping": {
			given: func(m *v1beta1.Module) {
				container(m).KernelMappings[1].InTreeModulesToRemove, container(m).KernelMappings[1].InTreeModuleToRemove = list, "a"
			},
			then: []string{in + ".kernelMappings[1]", "mutually exclusive"},
		},
		"case 5: list in the container, single in a mapping": {
			given: func(m *v1beta1.Module) {
				container(m).InTreeModulesToRemove, container(m).KernelMappings[0].InTreeModuleToRemove = list, "a"
			},
			then: []string{in, "cannot be mixed"},
		},
		"case 5: single in the container, list in a mapping": {
			given: func(m *v1beta1.Module) {
				container(m).InTreeModuleToRemove, container(m).KernelMappings[0].InTreeModulesToRemove = "a", list
			},
			then: []string{in, "cannot be mixed"},
		},
		"lists at both levels": {
			given: func(m *v1beta1.Module) {
				container(m).InTreeModulesToRemove, container(m).KernelMappings[0].InTreeModulesToRemove = list, list
			},
		},
	}
}

func modprobeCases() map[string]moduleCase {
	const in = "spec.moduleLoader.container.modprobe"
	raw := func(load, unload []string) *v1beta1.ModprobeArgs {
		return &v1beta1.ModprobeArgs{Load: load, Unload: unload}
	}
	given := func(change func(*v1beta1.ModprobeSpec)) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { change(&container(m).Modprobe) }
	}
	args := []string{"nic"}
	return map[string]moduleCase{
		"case 6: neither name nor rawArgs": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModuleName = "" }),
			then:  []string{in, "moduleName, or rawArgs"},
		},
		"case 6: rawArgs without unload": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModuleName, p.RawArgs = "", raw(args, nil) }),
			then:  []string{in, "both load and unload"},
		},
		"case 6: rawArgs without load": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModuleName, p.RawArgs = "", raw(nil, args) }),
			then:  []string{in, "both load and unload"},
		},
		"case 6: name and rawArgs": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.RawArgs = raw(args, args) }),
			then:  []string{in, "mutually exclusive"},
		},
		"case 6: rawArgs": {given: given(func(p *v1beta1.ModprobeSpec) { p.ModuleName, p.RawArgs = "", raw(args, args) })},
		"case 7: one module to order": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModulesLoadingOrder = []string{"nic"} }),
			then:  []string{in, "at least two entries"},
		},
		"case 7: an order without a name": {
			given: given(func(p *v1beta1.ModprobeSpec) {
				p.ModuleName, p.RawArgs, p.ModulesLoadingOrder = "", raw(args, args), []string{"nic", "core"}
			}),
			then: []string{in, "the first being moduleName"},
		},
		"case 7: another module first": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModulesLoadingOrder = []string{"core", "nic"} }),
			then:  []string{in, "the first being moduleName"},
		},
		"case 7: a module twice": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModulesLoadingOrder = []string{"nic", "core", "core"} }),
			then:  []string{in, "must not repeat"},
		},
		"an order": {given: given(func(p *v1beta1.ModprobeSpec) { p.ModulesLoadingOrder = []string{"nic", "core"} })},
		"firmware outside": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.FirmwarePath = "/firmware/../etc" }),
			then:  []string{in, "firmwarePath"},
		},
		"modprobe.d": {given: given(func(p *v1beta1.ModprobeSpec) { p.ModprobedDir = "/etc/modprobe.d" })},
		"modprobe.d, relative": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModprobedDir = "etc/modprobe.d" }),
			then:  []string{in, "modprobedDir must be an absolute path"},
		},
		"modprobe.d outside": {
			given: given(func(p *v1beta1.ModprobeSpec) { p.ModprobedDir = "/opt/../etc" }),
			then:  []string{in, "modprobedDir must be an absolute path"},
		},
		"relative firmware": {given: given(func(p *v1beta1.ModprobeSpec) { p.FirmwarePath = "firmwareDir/updates" })},
	}
}

// policyCases are about the policy drover-modules.
func policyCases() map[string]moduleCase {
	const in = "spec.moduleLoader.container"
	toleration := func(value corev1.Toleration) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) {
			m.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, value}
		}
	}
	return map[string]moduleCase{
		"unknown variable in the container": {
			given: func(m *v1beta1.Module) { container(m).ContainerImage = "example.com/nic:${NOT_KNOWN}" },
			then:  []string{in + ".containerImage", "unknown template variable"},
		},
		"unknown variable in a mapping": {
			given: func(m *v1beta1.Module) {
				container(m).KernelMappings[1].ContainerImage = "example.com/nic:$KERNEL_VERSIO"
			},
			then: []string{in + ".kernelMappings[1].containerImage", "unknown template variable"},
		},
		"an image in terms of itself": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[1].ContainerImage = "${CONTAINER_IMAGE}:1" },
			then:  []string{in + ".kernelMappings[1].containerImage", "unknown template variable"},
		},
		"unknown variable in an unsigned image": {
			given: func(m *v1beta1.Module) {
				container(m).Sign = sign("/opt/a.ko")
				container(m).Sign.UnsignedImage = "example.com/nic:$WHAT"
			},
			then: []string{in + ".sign.unsignedImage", "unknown template variable"},
		},
		"an unsigned image in terms of the image": {
			given: func(m *v1beta1.Module) {
				container(m).Sign = sign("/opt/a.ko")
				container(m).Sign.UnsignedImage = "${CONTAINER_IMAGE}-unsigned"
			},
		},
		"signing nothing": {
			given: func(m *v1beta1.Module) { container(m).KernelMappings[1].Sign = sign() },
			then:  []string{in + ".kernelMappings[1].sign.filesToSign", "required"},
		},
		"signing nothing anywhere": {
			given: func(m *v1beta1.Module) { container(m).Sign = sign() },
			then:  []string{in + ".kernelMappings[0].sign.filesToSign", "required"},
		},
		"signing elsewhere": {
			given: func(m *v1beta1.Module) { container(m).Sign = sign("/opt/a.ko", "/opts/b.ko") },
			then:  []string{in + ".sign.filesToSign[1]", `"/opt/"`},
		},
		"signing elsewhere in a mapping": {
			given: func(m *v1beta1.Module) {
				container(m).Modprobe.DirName = "/modules"
				container(m).KernelMappings[1].Sign = sign("/opt/a.ko")
			},
			then: []string{in + ".kernelMappings[1].sign.filesToSign", `"/modules/"`},
		},
		"signing": {given: func(m *v1beta1.Module) { container(m).Sign = sign("/opt/lib/modules/${KERNEL_VERSION}/a.ko") }},
		"a toleration's key": {
			given: toleration(corev1.Toleration{Key: "not/a/key", Operator: corev1.TolerationOpExists}),
			then:  []string{"spec.tolerations[1].key", "qualified name"},
		},
		"an empty key": {
			given: toleration(corev1.Toleration{Operator: corev1.TolerationOpEqual, Value: "x"}),
			then:  []string{"spec.tolerations[1].key", "Exists"},
		},
		"a toleration's operator": {
			given: toleration(corev1.Toleration{Key: "a", Operator: "Like"}),
			then:  []string{"spec.tolerations[1].operator"},
		},
		"a value with Exists": {
			given: toleration(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Value: "x"}),
			then:  []string{"spec.tolerations[1].operator"},
		},
		"a toleration's value": {
			given: toleration(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpEqual, Value: "not a label value"}),
			then:  []string{"spec.tolerations[1].value", "label value"},
		},
		"a toleration's effect": {
			given: toleration(corev1.Toleration{Key: "a", Effect: "Sometimes"}),
			then:  []string{"spec.tolerations[1].effect"},
		},
		"seconds without NoExecute": {
			given: toleration(corev1.Toleration{Key: "a", Effect: corev1.TaintEffectNoSchedule, TolerationSeconds: ptr.To[int64](1)}),
			then:  []string{"spec.tolerations[1].effect", "tolerationSeconds"},
		},
		"tolerations": {
			given: toleration(corev1.Toleration{
				Key: "example.com/a.b_c", Value: "x", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
			}),
		},
	}
}
