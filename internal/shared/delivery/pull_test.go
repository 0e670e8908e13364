// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func TestPullSecrets(t *testing.T) {
	named := func(names ...string) []corev1.LocalObjectReference {
		var all []corev1.LocalObjectReference
		for _, name := range names {
			all = append(all, corev1.LocalObjectReference{Name: name})
		}
		return all
	}
	cases := map[string]struct {
		one              string
		list, more, then []corev1.LocalObjectReference
	}{
		"none":                    {},
		"empty means unset":       {list: named("", "a"), then: named("a")},
		"one":                     {one: "a", then: named("a")},
		"the one before the list": {one: "b", list: named("a"), more: named("c"), then: named("b", "a", "c")},
		"each once":               {one: "a", list: named("a", "b"), more: named("b"), then: named("a", "b")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{ImageRepoSecret: &corev1.LocalObjectReference{Name: tc.one}, ImageRepoSecrets: tc.list}}
			if diff := cmp.Diff(tc.then, PullSecrets(m, tc.more...)); diff != "" {
				t.Errorf("Secrets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPullsAs: a carrier that waits for an image is made anew when the Module names other Secrets
// or another ServiceAccount.
func TestPullsAs(t *testing.T) {
	m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{ImageRepoSecret: &corev1.LocalObjectReference{Name: "a"}}}
	pod := Carrier(&Request{Module: m, Config: &v1beta1.ModuleConfig{}, Mode: ModeImageVolume})
	if !PullsAs(pod, m, "") {
		t.Error("a carrier does not pull as the Module it was made for")
	}
	for name, change := range map[string]func(*v1beta1.Module){
		"another Secret":     func(m *v1beta1.Module) { m.Spec.ImageRepoSecret.Name = "b" },
		"one more":           func(m *v1beta1.Module) { m.Spec.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "b"}} },
		"a ServiceAccount":   func(m *v1beta1.Module) { m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{ServiceAccountName: "b"} },
		"no Secret any more": func(m *v1beta1.Module) { m.Spec.ImageRepoSecret = nil },
	} {
		changed := m.DeepCopy()
		change(changed)
		if PullsAs(pod, changed, "") {
			t.Errorf("%s: the carrier is taken for right", name)
		}
	}
	delete(pod.Annotations, v1beta1.PullsAsAnnotation)
	if !PullsAs(pod, &v1beta1.Module{}, "") {
		t.Error("a carrier of an older operator is made anew")
	}
}
