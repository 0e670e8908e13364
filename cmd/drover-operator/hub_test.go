// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// asOperator makes the test's program the operator: what it sets is the whole process's.
const asOperator = "DROVER_OPERATOR_UNDER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asOperator) != "" {
		main()
		return
	}
	os.Exit(env.Main(m))
}

// startOperator runs the operator in a process of its own, as a ServiceAccount of the operator's
// namespace.
func startOperator(t *testing.T, account string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, logFile := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "operator.log")
	if err := fleet.WriteKubeconfig(kubeconfig, env.Get(t).Config(t, account)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process, err := fleet.StartProcess(self, logFile, append([]string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + env.OperatorNamespace, "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--leader-elect=false",
	}, args...), asOperator+"=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Errorf("the operator's process: %v", err)
		}
		said, err := os.ReadFile(logFile)
		if strings.Contains(string(said), "DATA RACE") {
			t.Error("the race detector found something in the operator's process")
		}
		if t.Failed() {
			t.Logf("the operator's log (%v):\n%s", err, said)
		}
	})
}

// patience is for a process that starts, and looks every ten seconds for what may come.
const patience = time.Minute

// hubUnderTest is a hub's process with the rights of config/hub, and its administrator.
type hubUnderTest struct {
	*testing.T
	admin client.Client
}

func startTestHub(t *testing.T) *hubUnderTest {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "hub")
	scheme := env.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{hubv1beta1.AddToScheme, clusterv1.Install, workv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(e.AdminConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	startOperator(t, operator.HubName, "--mode=hub", "--signer-image=registry.invalid/drover/drover-signer:dev")
	return &hubUnderTest{T: t, admin: admin}
}

func (h *hubUnderTest) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hubUnderTest) eventually(what string, holds func(context.Context) error) {
	h.Helper()
	last := errors.New("was not asked")
	if err := wait.PollUntilContextTimeout(h.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		return last == nil, nil
	}); err != nil {
		h.Fatalf("%s, within %s: %v", what, patience, last)
	}
}

// installOCM installs the hub's side of Open Cluster Management, whose definitions come with the
// module of its API.
func (h *hubUnderTest) installOCM() {
	h.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	h.must(err)
	root := strings.TrimSpace(string(dir))
	options := envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(root, "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml"),
		filepath.Join(root, "work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml"),
	}}
	_, err = envtest.InstallCRDs(env.Get(h).AdminConfig(), options)
	h.must(err)
	h.Cleanup(func() { h.must(envtest.UninstallCRDs(env.Get(h).AdminConfig(), options)) })
}

// TestAHubStartsBeforeOpenClusterManagement, says what is missing, and goes on when it has come.
func TestAHubStartsBeforeOpenClusterManagement(t *testing.T) {
	h := startTestHub(t)
	m := &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: hubv1beta1.ManagedClusterModuleSpec{
		SpokeNamespace: "drivers", Selector: map[string]string{"site": "north"},
		ModuleSpec: v1beta1.ModuleSpec{Selector: map[string]string{},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:1"}},
			}}},
	}}
	h.must(h.admin.Create(t.Context(), m))
	h.eventually("the condition says what is missing", func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || !strings.Contains(c.Message, "not installed on the hub: manifestwork") {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})

	h.installOCM()
	north := env.Get(t).Namespace(t)
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: north, Labels: map[string]string{"site": "north"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	h.must(h.admin.Create(t.Context(), cluster))
	h.eventually("the cluster is sent the Module", func(ctx context.Context) error {
		return h.admin.Get(ctx, client.ObjectKey{Namespace: north, Name: "nic"}, &workv1.ManifestWork{})
	})

	h.must(h.admin.Delete(t.Context(), m))
	h.eventually("nothing is left", func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(m), m); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
}
