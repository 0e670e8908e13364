// SPDX-License-Identifier: Apache-2.0

//go:build migrate

package migrate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// chart is as much of KMM's chart as matters: a definition that is a template, and something else.
var chart = map[string]string{
	"Chart.yaml": "apiVersion: v2\nname: kmm\nversion: 0.1.0\n",
	"templates/preflightvalidations-crd.yaml": `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: preflightvalidations.kmm.sigs.x-k8s.io
  labels: {app.kubernetes.io/managed-by: {{ .Release.Service }}}
spec:
  group: kmm.sigs.x-k8s.io
  names: {kind: PreflightValidation, listKind: PreflightValidationList, plural: preflightvalidations, singular: preflightvalidation}
  scope: Cluster
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`,
	"templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\n" +
		"metadata: {name: kmm-operator-controller, namespace: {{ .Release.Namespace }}}\n",
}

// TestMigrateHelm: what Helm itself does to a definition with `helm uninstall`, before and after
// --apply, and with `helm upgrade` to a chart without the definition.
func TestMigrateHelm(t *testing.T) {
	helm, err := filepath.Abs(filepath.Join(root, "bin/helm"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{ReadyTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	drover, folder := filepath.Join(t.TempDir(), "drover"), t.TempDir()
	if err := fleet.BuildProgram(t.Context(), root, "./cmd/drover", drover); err != nil {
		t.Fatal(err)
	}
	for name, content := range chart {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig,
			"HELM_DATA_HOME="+folder, "HELM_CONFIG_HOME="+folder, "HELM_CACHE_HOME="+folder)
		out, err := cmd.CombinedOutput()
		t.Logf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
		return string(out), err
	}
	must := func(program string, args ...string) {
		t.Helper()
		if _, err := run(program, args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := filepath.Join(root, "bin/assets/kubectl")
	there := func() bool {
		out, err := run(kubectl, "get", "crd", preflights, "--ignore-not-found", "-o", "name")
		return err == nil && strings.Contains(out, preflights)
	}
	must(helm, "install", "kmm", folder, "-n", peer, "--create-namespace", "--wait")
	must(helm, "uninstall", "kmm", "-n", peer, "--wait")
	if there() {
		t.Error("Helm keeps the definition by itself: this test shows nothing")
	}
	must(helm, "install", "kmm", folder, "-n", peer, "--wait")
	if _, err := run(drover, "migrate", "kmm"); err == nil {
		t.Error("a definition that Helm would delete is not in the way")
	}
	must(drover, "migrate", "kmm", "--apply")
	must(helm, "uninstall", "kmm", "-n", peer, "--wait")
	if !there() {
		t.Error("after --apply, `helm uninstall` has deleted the definition")
	}
	if out, _ := run(kubectl, "get", "serviceaccounts", "-n", peer, "-o", "name"); strings.Contains(out, "kmm-operator") { // it is in the log
		t.Error("`helm uninstall` has deleted nothing")
	}
	// A chart that leaves KMM out, as AMD's with kmm.enabled=false.
	must(helm, "install", "gpu", folder, "-n", peer, "--take-ownership")
	must(drover, "migrate", "kmm", "--apply")
	if err := os.Remove(filepath.Join(folder, "templates/preflightvalidations-crd.yaml")); err != nil {
		t.Fatal(err)
	}
	must(helm, "upgrade", "gpu", folder, "-n", peer)
	if !there() {
		t.Error("after --apply, `helm upgrade` has deleted the definition")
	}
}
