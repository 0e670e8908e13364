// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/plan"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic}
spec:
  selector: {SELECT: "yes"}
  moduleLoader:
    container:
      modprobe: {moduleName: nic}
      kernelMappings:
      - {regexp: 'REGEXP', containerImage: "registry.example.com/nic:1"}
`

// TestAPolicyOfNodesIsForetold: admission does not know of nodes, and lets the Module in.
func TestAPolicyOfNodesIsForetold(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for _, o := range []client.Object{
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Labels: map[string]string{namespace: "yes"}},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0-44-amd64"}},
		},
		&v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.ModulePolicySpec{
			Mode: v1alpha1.PolicyEnforce, Modules: []string{"gpu"},
			NodeSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{namespace: "yes"}},
		}},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })
	}
	file := filepath.Join(t.TempDir(), "module.yaml")
	text := strings.NewReplacer("SELECT", namespace, "REGEXP", "^6").Replace(manifest)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := clitest.Run(t, e.AdminConfig(), namespace, plan.NewCommand, "-f", file)
	if code != 1 || !strings.Contains(out, "would take it") || !strings.Contains(out, "BLOCKED      1: "+namespace+"-node") ||
		!strings.Contains(out, "ModulePolicy "+namespace+` does not allow the kernel module "nic"`) {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	// Who may not see the namespace's labels is told that something is missing, and gets the rest.
	out, _ = clitest.Run(t, clitest.Viewer(t, e, cluster.ViewerRole, ""), namespace, plan.NewCommand, "-f", file)
	if !strings.Contains(out, "LOAD         1: "+namespace+"-node") || !strings.Contains(out, "whether a ModulePolicy denies") {
		t.Errorf("a viewer is told:\n%s", out)
	}
}

// TestNothingIsChanged plans against a cluster, as an administrator and as a viewer.
func TestNothingIsChanged(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Labels: map[string]string{namespace: "yes"}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0-44-amd64"}},
	}
	if err := admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	everywhere, here := clitest.Viewer(t, e, cluster.ViewerRole, ""), clitest.Viewer(t, e, "drover-module-view", namespace)
	cases := map[string]struct {
		who    string
		regexp string
		add    string
		then   int
		says   []string
	}{
		"new": {regexp: "^6", says: []string{"(new): 1 load.", "would take it (dry run)", "LOAD         1: " + node.Name, "delivered first"}},
		"not covered": {regexp: "^5", then: 1,
			says: []string{"1 not covered.", "NOT COVERED  1: " + node.Name, "no mapping matches kernel 6.1.0-44-amd64"}},
		"refused":               {regexp: "(", then: 1, says: []string{"(new) would be refused", "kernelMappings[0].regexp"}},
		"a field that is wrong": {regexp: "^6", add: "      wrong: yes\n", then: 2, says: []string{"wrong"}},
		"who may only look": {who: "viewer", regexp: "^6", says: []string{"1 load", "Admission was not tried: you may not create Modules " +
			"in namespace " + namespace}},
		"who may see no node": {who: "blind", regexp: "^6", then: 2,
			says: []string{"you may not see what would happen on nodes", "drover-module-viewer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "module.yaml")
			text := strings.NewReplacer("SELECT", namespace, "REGEXP", tc.regexp).Replace(manifest) + tc.add
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			config := e.AdminConfig()
			switch tc.who {
			case "viewer":
				config = everywhere
			case "blind":
				config = here
			}
			out, code := clitest.Run(t, config, namespace, plan.NewCommand, "-f", file)
			if code != tc.then {
				t.Errorf("it ends with %d, want %d", code, tc.then)
			}
			for _, words := range tc.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
			var list v1beta1.ModuleList
			if err := admin.List(t.Context(), &list, client.InNamespace(namespace)); err != nil || len(list.Items) > 0 {
				t.Errorf("Modules are there (%v): %d", err, len(list.Items))
			}
		})
	}
}
