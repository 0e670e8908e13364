// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestForeignWordsSteerNoTerminal: an agent's message, and a kernel version that is none.
func TestForeignWordsSteerNoTerminal(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	loader := v1beta1.ModuleLoaderContainerSpec{
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: "registry.example.com/nic:1"}},
	}
	must(admin.Create(t.Context(), &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{namespace: "yes"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: loader},
		},
	}))
	for name, kernel := range map[string]string{"talks": "6.1.0", "lies": "6.1.0$(reboot)\x1b[2J"} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name, Labels: map[string]string{namespace: "yes"}},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: kernel, OSImage: "\x1b[2J"}},
		}
		must(admin.Create(t.Context(), node))
	}
	config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-talks"}}
	item := v1beta1.ModuleItem{Namespace: namespace, Name: "nic"}
	config.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: item, Config: v1beta1.ModuleConfig{KernelVersion: "6.1.0",
		ContainerImage: "registry.example.com/nic:1", Modprobe: loader.Modprobe}}}
	must(admin.Create(t.Context(), config))
	config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: namespace, Name: "nic", State: v1beta1.AttemptFailed,
		Reason: v1beta1.ReasonLoadFailed, Message: "\x1b[2J\x1b]0;all is well\x07\u202erefused", LastTransitionTime: metav1.Now()}}
	must(admin.Status().Update(t.Context(), config))
	viewer := clitest.Viewer(t, e, cluster.ViewerRole, "")
	for node, says := range map[string][]string{
		"":      {"?[2J?]0;all is well??refused", v1beta1.ReasonInvalidKernelVersion, namespace + "-lies"},
		"talks": {"?[2J?]0;all is well??refused"},
		"lies":  {v1beta1.ReasonInvalidKernelVersion, `"6.1.0$(reboot)?[2J" is not a kernel version`, "compare its status.nodeInfo.kernelVersion"},
	} {
		args := []string{"nic"}
		if node != "" {
			args = append(args, namespace+"-"+node)
		}
		for _, format := range []string{"", "json", "yaml"} {
			all := args
			if format != "" {
				all = append(args[:len(args):len(args)], "-o", format)
			}
			out, code := clitest.Run(t, viewer, namespace, explain.NewCommand, all...)
			if steers := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }; code != 1 || strings.ContainsFunc(out, steers) {
				t.Errorf("%v: exit code %d, and it says %q", all, code, out)
			}
			for _, text := range says {
				if format == "" && !strings.Contains(out, text) {
					t.Errorf("%v does not say %q:\n%s", all, text, out)
				}
			}
		}
	}
}
