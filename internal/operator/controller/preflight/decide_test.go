// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

func TestArchitectures(t *testing.T) {
	node := func(arch string, labels map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: arch, KernelVersion: "6.1.0"}}}
	}
	chosen := map[string]string{"gpu": "yes"}
	nodes := []corev1.Node{node("arm64", chosen), node("amd64", nil), node("arm64", chosen), node("", chosen)}
	cases := map[string]struct {
		kernel   string
		labels   map[string]string
		selector map[string]string
		nodes    []corev1.Node
		then     []string
	}{
		"the labels say it": {"6.1.0-44-amd64", map[string]string{corev1.LabelArchStable: "s390x"}, chosen, nodes,
			[]string{"s390x"}},
		"the selector says it": {"6.1.0-44-amd64", nil, map[string]string{corev1.LabelArchStable: "riscv64"}, nodes,
			[]string{"riscv64"}},
		"the kernel's name says it, RHEL":     {"5.14.0-503.el9_5.aarch64", nil, chosen, nil, []string{"arm64"}},
		"the kernel's name says it, Debian":   {"6.1.0-44-cloud-amd64", nil, chosen, nodes, []string{"amd64"}},
		"the kernel's name says it, with a +": {"6.12.57-x86_64+", nil, chosen, nodes, []string{"amd64"}},
		"the nodes of the Module say it":      {"5.4.0-104-generic", nil, chosen, nodes, []string{"arm64"}},
		"of all nodes, each once":             {"5.4.0-104-generic", nil, nil, nodes, []string{"amd64", "arm64"}},
		"nobody says it":                      {"5.4.0-104-generic", nil, chosen, nil, []string{"amd64"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &v1beta2.PreflightValidation{Spec: v1beta2.PreflightValidationSpec{KernelVersion: tc.kernel, Labels: tc.labels}}
			m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{Selector: tc.selector}}
			if got := architectures(p, m, tc.nodes); !slices.Equal(got, tc.then) {
				t.Errorf("%v, want %v", got, tc.then)
			}
		})
	}
}
