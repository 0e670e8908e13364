// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/operator/controller/claims"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// world is a spoke, whose operator has the rights of config/spoke.
type world struct {
	*testing.T
	admin   client.Client
	control *claims.Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "spoke")
	scheme := env.NewScheme()
	if err := clusterv1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t}
	var err error
	w.admin, err = client.New(e.AdminConfig(), client.Options{Scheme: scheme})
	w.must(err)
	operator, err := client.New(e.Config(t, env.Operator), client.Options{Scheme: scheme})
	w.must(err)
	w.control = claims.New(operator, operator, env.OperatorNamespace)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// node joins one that runs a kernel.
func (w *world) node(name, kernel string, change ...func(*corev1.Node)) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.must(w.admin.Create(w.Context(), n))
	n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.Architecture = kernel, "arm64"
	for _, c := range change {
		c(n)
	}
	w.must(w.admin.Status().Update(w.Context(), n))
	w.Cleanup(func() { w.must(w.admin.Delete(context.Background(), n)) })
}

func (w *world) pass() reconcile.Result {
	w.Helper()
	result, err := w.control.Reconcile(w.Context(), reconcile.Request{})
	w.must(err)
	return result
}

func (w *world) installOCM() {
	w.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	w.must(err)
	options := envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(strings.TrimSpace(string(dir)),
			"cluster/v1alpha1/0000_02_clusters.open-cluster-management.io_clusterclaims.crd.yaml")},
	}
	_, err = envtest.InstallCRDs(env.Get(w).AdminConfig(), options)
	w.must(err)
	w.Cleanup(func() { w.must(envtest.UninstallCRDs(env.Get(w).AdminConfig(), options)) })
}

// TestASpokeSaysWhatItRuns: in a ConfigMap at once, in ClusterClaims when Open Cluster Management
// has come, and once for each change.
func TestASpokeSaysWhatItRuns(t *testing.T) {
	w := newWorld(t)
	w.node("a", "6.1.0-44-amd64")
	w.node("b", "6.12.57+deb12-amd64")
	w.node("c", "6.12.57+deb12-amd64")
	w.node("w", "10.0.20348.2031", func(n *corev1.Node) { n.Status.NodeInfo.OperatingSystem = "windows" })
	if again := w.pass().RequeueAfter; again == 0 {
		t.Error("nobody looks whether Open Cluster Management comes")
	}
	said := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: env.OperatorNamespace, Name: direct.Platforms}
	w.must(w.admin.Get(t.Context(), key, said))
	for name, want := range map[string]string{
		hub.KernelsClaim:   "6.1.0-44-amd64\n6.12.57+deb12-amd64",
		hub.PlatformsClaim: "arm64/6.1.0-44-amd64\narm64/6.12.57+deb12-amd64",
	} {
		if said.Data[name] != want {
			t.Errorf("%s is %q instead of %q", name, said.Data[name], want)
		}
	}

	w.installOCM()
	w.pass()
	versions := map[string]string{}
	for name, want := range said.Data {
		claim := &clusterv1alpha1.ClusterClaim{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: name}, claim))
		if claim.Spec.Value != want {
			t.Errorf("claim %s is %q instead of %q", name, claim.Spec.Value, want)
		}
		versions[name] = claim.ResourceVersion
	}
	w.pass()
	now := &corev1.ConfigMap{}
	w.must(w.admin.Get(t.Context(), key, now))
	if now.ResourceVersion != said.ResourceVersion {
		t.Error("the ConfigMap was written again without a change")
	}
	for name, version := range versions {
		claim := &clusterv1alpha1.ClusterClaim{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: name}, claim))
		if claim.ResourceVersion != version {
			t.Errorf("claim %s was written again without a change", name)
		}
	}

	// What somebody deletes is said again.
	w.must(w.admin.Delete(t.Context(), now))
	for name := range versions {
		w.must(w.admin.Delete(t.Context(), &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	if again := w.pass().RequeueAfter; again == 0 {
		t.Error("nobody looks whether it still stands")
	}
	w.must(w.admin.Get(t.Context(), key, now))
	for name := range versions {
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: name}, &clusterv1alpha1.ClusterClaim{}))
	}

	w.node("d", "6.1.0-45-amd64")
	w.pass()
	claim := &clusterv1alpha1.ClusterClaim{}
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: hub.KernelsClaim}, claim))
	if !strings.Contains(claim.Spec.Value, "6.1.0-45-amd64") {
		t.Errorf("a new kernel is not told of: %q", claim.Spec.Value)
	}
}
