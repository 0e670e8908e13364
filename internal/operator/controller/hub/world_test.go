// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/ocm"
	"github.com/drover-project/drover/internal/operator"
	controller "github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	digest  = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	kernel  = "6.1.0-56-amd64"
	another = "6.12.9+deb12-amd64"
)

// world is a hub with Open Cluster Management. The test plays the clusters, their work agents and
// what makes images.
type world struct {
	*testing.T
	admin   client.Client
	control *controller.Controller
	name    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "hub")
	installOCM(t, e)
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
	w := &world{T: t, admin: admin, name: e.Namespace(t)}
	w.begin()
	w.must(admin.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: w.name}, Data: map[string]string{"dockerfile": "FROM scratch"},
	}))
	return w
}

// begin starts a new process of the hub.
func (w *world) begin() {
	w.Helper()
	as, err := client.New(env.Get(w).Config(w.T, operator.HubName), client.Options{Scheme: w.admin.Scheme()})
	w.must(err)
	w.control = controller.New(as, as, controller.Options{
		Namespace: env.OperatorNamespace, BuildahImage: "q/buildah@" + digest, Gate: &gate.Gate{}, Hub: self,
		Transports: []hub.Transport{ocm.New(as, nil, self)},
	})
}

// installOCM installs the definitions that come with the module of its API.
func installOCM(t *testing.T, e *env.Env) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(dir))
	if _, err := envtest.InstallCRDs(e.AdminConfig(), envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(root, "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml"),
		filepath.Join(root, "work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml"),
	}}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// cluster joins a cluster of the world.
func (w *world) cluster(short string, kernels ...string) string {
	w.Helper()
	name := w.name + "-" + short
	w.must(w.admin.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"world": w.name, "cluster": short}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	w.must(w.admin.Create(w.Context(), c))
	w.claims(name, kernels...)
	return name
}

// claims has a cluster say what it runs.
func (w *world) claims(cluster string, kernels ...string) {
	w.Helper()
	c := &clusterv1.ManagedCluster{}
	w.must(w.admin.Get(w.Context(), client.ObjectKey{Name: cluster}, c))
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: hub.KernelsClaim, Value: strings.Join(kernels, "\n")}}
	c.Status.Conditions = []metav1.Condition{}
	w.must(w.admin.Status().Update(w.Context(), c))
}

// module asks for one that is built.
func (w *world) module(change ...func(*hubv1beta1.ManagedClusterModule)) *hubv1beta1.ManagedClusterModule {
	w.Helper()
	m := &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: hubv1beta1.ManagedClusterModuleSpec{
		SpokeNamespace: "drivers", Selector: map[string]string{"world": w.name},
		ModuleSpec: v1beta1.ModuleSpec{Selector: map[string]string{},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
				Build:    &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: w.name}},
				KernelMappings: []v1beta1.KernelMapping{{
					Regexp: "^6", ContainerImage: "r.example/nic:$KERNEL_FULL_VERSION",
				}},
			}}},
	}}
	for _, c := range change {
		c(m)
	}
	w.must(w.admin.Create(w.Context(), m))
	return m
}

// pass reconciles, and reads the status.
func (w *world) pass(m *hubv1beta1.ManagedClusterModule) {
	w.Helper()
	w.must(w.try(m))
}

// fails is a pass in which something fails, and why.
func (w *world) fails(m *hubv1beta1.ManagedClusterModule) error {
	w.Helper()
	err := w.try(m)
	if err == nil {
		w.Fatal("nothing failed")
	}
	return err
}

func (w *world) try(m *hubv1beta1.ManagedClusterModule) error {
	w.Helper()
	_, err := w.control.Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: m.Name}})
	w.must(client.IgnoreNotFound(w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), m)))
	return err
}

// images are those that are asked for.
func (w *world) images() []v1alpha1.ModuleImage {
	w.Helper()
	var list v1alpha1.ModuleImageList
	w.must(w.admin.List(w.Context(), &list, client.InNamespace(env.OperatorNamespace), client.MatchingLabels{hub.NameLabel: w.name}))
	return list.Items
}

// make has all images made.
func (w *world) make() {
	w.Helper()
	for _, image := range w.images() {
		image.Status = v1alpha1.ModuleImageStatus{ObservedGeneration: image.Generation, Image: "r.example/nic@" + digest,
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable,
				ObservedGeneration: image.Generation,
				LastTransitionTime: metav1.Now(),
			}}}
		w.must(w.admin.Status().Update(w.Context(), &image))
	}
}

// work is what a cluster has; nil: nothing.
func (w *world) work(cluster string) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{}
	err := w.admin.Get(w.Context(), types.NamespacedName{Namespace: cluster, Name: w.name}, work)
	w.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return work
}

// answer plays a cluster's work agent and its operator.
func (w *world) answer(cluster string, ready metav1.ConditionStatus, reason, message string) {
	w.Helper()
	work := w.work(cluster)
	if work == nil {
		w.Fatalf("cluster %s has nothing to answer", cluster)
	}
	text := func(name, value string) workv1.FeedbackValue {
		return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &value}}
	}
	number := func(name string, value int64) workv1.FeedbackValue {
		return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: ptr.To(value)}}
	}
	applied := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: work.Generation,
		LastTransitionTime: metav1.Now()}
	work.Status = workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			Conditions: []metav1.Condition{applied}, StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				text("revision", hub.ModuleOf(work).Annotations[hub.RevisionAnnotation]), number("generation", 3), number("observedGeneration", 3),
				text("ready", string(ready)), text("reason", reason), text("message", message), number("desired", 2), number("available", 2),
			}},
		}}}}
	w.must(w.admin.Status().Update(w.Context(), work))
}

func (w *world) ready(m *hubv1beta1.ManagedClusterModule, status metav1.ConditionStatus, reason, message string) {
	w.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
		text, _ := json.Marshal(m.Status)
		w.Errorf("want %s %s %q; the status is %s", status, reason, message, text)
	}
}
