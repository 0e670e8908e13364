// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// wantsAll is a Module with everything that a policy must allow.
func wantsAll(namespace string) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{namespace: "yes"}, StartupTaint: "example.com/starting",
			Rollout: &v1beta1.RolloutSpec{Drain: v1beta1.DrainNode},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic", FirmwarePath: "/firmware",
					Args: &v1beta1.ModprobeArgs{Load: []string{"-v"}}},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: "registry.example.com/nic:1"}},
			}},
			DevicePlugin: &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "registry.example.com/plugin:1"}},
		},
	}
}

// TestWhatPoliciesTakeFromAModule that is older than they are: each field, on which nodes, and the
// exit code.
func TestWhatPoliciesTakeFromAModule(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	create := func(object client.Object) {
		t.Helper()
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), object) })
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-0", Labels: map[string]string{namespace: "yes"}}}
	create(node)
	node.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", KernelVersion: "6.1.0", Architecture: "amd64"}
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	create(wantsAll(namespace))
	run := func() (string, int) {
		t.Helper()
		return clitest.Run(t, e.AdminConfig(), namespace, lint.NewCommand, "--policies")
	}
	if out, code := run(); code != 0 || !strings.Contains(out, "No ModulePolicy denies anything of 1 Module") {
		t.Errorf("without a policy: exit code %d:\n%s", code, out)
	}
	policy := &v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.ModulePolicySpec{
		Mode: v1alpha1.PolicyAudit, NamespaceSelector: &v1alpha1.ModulePolicySelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}}
	create(policy)
	lost := []string{
		"spec.moduleLoader.container.modprobe: ModulePolicy " + namespace + " allows no args and no rawArgs (on " + node.Name + ")",
		"spec.moduleLoader.container.modprobe.firmwarePath: ModulePolicy " + namespace + " allows no firmware (on " + node.Name + ")",
		"spec.rollout.drain: ModulePolicy " + namespace + " does not allow Node (on " + node.Name + ")",
		"spec.startupTaint: ModulePolicy " + namespace + " does not allow the taint example.com/starting",
		"spec.devicePlugin: ModulePolicy " + namespace + " allows no device plugin",
	}
	expect := func(mark string, want int) {
		t.Helper()
		out, code := run()
		if code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		for _, line := range lost {
			if !strings.Contains(out, "  "+mark+": "+line+"\n") {
				t.Errorf("it does not say %q:\n%s", line, out)
			}
		}
	}
	expect("would be denied", 0)
	policy.Spec.Mode = v1alpha1.PolicyEnforce
	if err := admin.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	expect("denied", 1)
}
