// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// labelled are the labels of any node that can do the work, and more.
func labelled(more map[string]string) map[string]string {
	all := map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	maps.Copy(all, more)
	return all
}

// TestJobsRunOnNodesThatAreNamed: a Job that has a Secret, or makes anything, runs nowhere else.
func TestJobsRunOnNodesThatAreNamed(t *testing.T) {
	type set = map[string]string
	selects := func(m *v1beta1.Module) { m.Spec.Selector = set{"gpu": "true"} }
	signsOnly := func(m *v1beta1.Module) {
		signing(m)
		container(m).Build, container(m).Sign.UnsignedImage = nil, "r/u:1"
	}
	buildsAt := func(labels set) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Build.Selector = labels }
	}
	signsAt := func(labels set) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Sign.Selector = labels }
	}
	mappingSignsAt := func(labels set) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).KernelMappings[0].Sign = &v1beta1.Sign{Selector: labels} }
	}
	for name, tc := range map[string]struct {
		given    []func(*v1beta1.Module)
		operator set
		then     set
	}{
		"a build":             {then: set{"gpu": "true"}},
		"a native build":      {given: []func(*v1beta1.Module){compiling}, then: set{"gpu": "true"}},
		"a signature":         {given: []func(*v1beta1.Module){signsOnly}, then: set{"gpu": "true"}},
		"both":                {given: []func(*v1beta1.Module){compiling, signing}, then: set{"gpu": "true"}},
		"build.selector":      {given: []func(*v1beta1.Module){signing, buildsAt(set{"a": "b"})}, then: set{"a": "b"}},
		"sign.selector":       {given: []func(*v1beta1.Module){signing, signsAt(set{"c": "d"})}, then: set{"c": "d"}},
		"sign.selector alone": {given: []func(*v1beta1.Module){signsOnly, signsAt(set{"c": "d"})}, then: set{"c": "d"}},
		"a mapping's": {
			given: []func(*v1beta1.Module){signing, signsAt(set{"c": "d"}), mappingSignsAt(set{"e": "f"})},
			then:  set{"e": "f"},
		},
		"both selectors": {
			given: []func(*v1beta1.Module){signing, buildsAt(set{"a": "b"}), signsAt(set{"c": "d"})},
			then:  set{"a": "b", "c": "d"},
		},
		"the operator's": {given: []func(*v1beta1.Module){signing}, operator: set{"o": "p"}, then: set{"o": "p"}},
		"the operator's, and ours": {
			given:    []func(*v1beta1.Module){signing, signsAt(set{"c": "d"})},
			operator: set{"o": "p"}, then: set{"c": "d"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Selector = tc.operator
			j := pipeline.Job(image(t, module(append(tc.given, selects)...), configMap("FROM a"), o.BuildahImage), 1, "New", o)
			if diff := cmp.Diff(labelled(tc.then), j.Spec.Template.Spec.NodeSelector); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestExaminationsRunWhereSecretsMayBe: with a pull secret, its own or the ServiceAccount's, on the
// Module's nodes. Without one anywhere: the Module may have no node yet.
func TestExaminationsRunWhereSecretsMayBe(t *testing.T) {
	for name, tc := range map[string]struct {
		own     bool
		account []corev1.LocalObjectReference
		then    map[string]string
	}{
		"its own":              {own: true, then: map[string]string{"gpu": "true"}},
		"the ServiceAccount's": {account: []corev1.LocalObjectReference{{Name: "pull"}}, then: map[string]string{"gpu": "true"}},
		"none":                 {},
	} {
		t.Run(name, func(t *testing.T) {
			m := module()
			m.Spec.Selector, container(m).Build = map[string]string{"gpu": "true"}, nil
			if !tc.own {
				m.Spec.ImageRepoSecret = nil
			}
			mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
			if err != nil {
				t.Fatal(err)
			}
			resolved, _, err := mapper.For(kernelVersion, "amd64")
			if err != nil {
				t.Fatal(err)
			}
			img := image(t, module(), configMap("FROM a"), "b@1")
			img.Spec = *pipeline.Examination(m, &resolved, "amd64", "r/m:1")
			o := options()
			o.AccountSecrets = tc.account
			if diff := cmp.Diff(labelled(tc.then), pipeline.Job(img, 1, "New", o).Spec.Template.Spec.NodeSelector); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSelectorsThatNoNodeHas are refused before a Job waits for such a node.
func TestSelectorsThatNoNodeHas(t *testing.T) {
	m := module(signing, func(m *v1beta1.Module) {
		container(m).Build.Selector = map[string]string{"role": "builder", "zone": "a"}
		container(m).Sign.Selector = map[string]string{"role": "signer", "zone": "a"}
	})
	_, err := declare(t, m, kernelVersion)
	if want := "sign.selector wants role=signer and build.selector role=builder"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("no %q in: %v", want, err)
	}
}

// TestJobsRunOnNewNodes: the taint that a new node has until the Module is ready there would keep
// out the Job that makes its image.
func TestJobsRunOnNewNodes(t *testing.T) {
	pod := job(t, func(m *v1beta1.Module) { m.Spec.StartupTaint = "example.com/not-ready" }).Spec.Template.Spec
	if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "example.com/not-ready" }) {
		t.Errorf("tolerations are %v", pod.Tolerations)
	}
}
