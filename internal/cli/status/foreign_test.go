// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/status"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestAForeignDefinitionIsNamed: where another chart has replaced the definition of Modules, the
// operator has no condition to say so.
func TestAForeignDefinitionIsNamed(t *testing.T) {
	e := env.Get(t)
	namespace := e.Namespace(t)
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{namespace: "yes"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{
			Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".*", ContainerImage: "registry.example.com/nic:1"}},
			},
		}},
	}
	if err := e.Admin(t).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Labels: map[string]string{namespace: "yes"}}}
	node.Status.NodeInfo.OperatingSystem, node.Status.NodeInfo.KernelVersion = "linux", "6.1.0-44-amd64"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := e.Admin(t).Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Admin(t).Delete(context.Background(), node) })
	viewer := clitest.Viewer(t, e, cluster.ViewerRole, "")
	if out, _ := clitest.Run(t, viewer, namespace, status.NewCommand, "nic"); strings.Contains(out, v1beta1.ReasonCRDIncompatible) {
		t.Fatalf("with our own definition:\n%s", out)
	}
	e.Redefine(t, definition.Modules, "properties.status.properties.conditions",
		func(status map[string]any, key string) { delete(status, key) })
	for name, tc := range map[string]struct {
		command clitest.New
		says    string
	}{
		"status": {status.NewCommand, v1beta1.ReasonCRDIncompatible}, "explain": {explain.NewCommand, "status.conditions is missing"},
	} {
		if out, code := clitest.Run(t, viewer, namespace, tc.command, "nic"); code != 1 || !strings.Contains(out, tc.says) {
			t.Errorf("%s ends with %d and does not say %q:\n%s", name, code, tc.says, out)
		}
	}
}
