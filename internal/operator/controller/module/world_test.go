// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/testkit/env"
)

const kernelVersion = "6.1.0-37-amd64"

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// world is one test's corner of the shared API server: a namespace, and nodes that only its Modules
// select. The controller reads from the API server itself, so that every pass sees everything.
type world struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	operator  client.WithWatch
	control   *module.Controller
	clock     *clocktesting.FakePassiveClock
	events    *events.FakeRecorder
	gate      gate.Gate
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	w := &world{T: t, env: e, clock: clocktesting.NewFakePassiveClock(time.Now()), events: events.NewFakeRecorder(100), admin: e.Admin(t),
		operator: e.Client(t, kube.Hasty(e.Config(t, env.Operator))), namespace: e.Namespace(t)}
	w.use(w.operator)
	return w
}

// use makes a new controller, as a restart does, on a client that may be made to fail.
func (w *world) use(c client.Client) { w.useBoth(c, c) }

// useBoth makes a controller whose cache may be behind the API server.
func (w *world) useBoth(c client.Client, live client.Reader) {
	w.control = module.New(c, live, module.Options{AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, Clock: w.clock,
		Recorder: kube.NewRecorder(w.events), Gate: &w.gate})
}

// node makes a Ready node that the world's Modules select.
func (w *world) node(suffix string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   w.namespace + "-" + suffix,
		Labels: map[string]string{"test": w.namespace, corev1.LabelOSStable: "linux"},
	}}
	w.must(w.admin.Create(w.Context(), node))
	// A new node is tainted not-ready until a controller manager has seen it, and there is none here.
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		KernelVersion: kernelVersion, KubeletVersion: env.Get(w).KubeletVersion(w), ContainerRuntimeVersion: "containerd://2.1.4",
		BootID: "boot-1",
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.must(w.admin.Status().Update(w.Context(), node))
	w.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, admin := context.Background(), w.env.Admin(w.T)
		nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		err := errors.Join(client.IgnoreNotFound(admin.Patch(ctx, nmc, free)), client.IgnoreNotFound(admin.Delete(ctx, nmc)),
			client.IgnoreNotFound(admin.Delete(ctx, node)))
		if err != nil {
			w.Error(err)
		}
	})
	return node
}

// relabel changes the label that the world's Modules select by; the world's namespace is what they
// want.
func (w *world) relabel(node *corev1.Node, value string) {
	w.Helper()
	patch := client.MergeFrom(node.DeepCopy())
	node.Labels["test"] = value
	w.must(w.admin.Patch(w.Context(), node, patch))
}

// deselect takes a node out of the Modules' selection, for longer than their grace period.
func (w *world) deselect(node *corev1.Node, m *v1beta1.Module) {
	w.Helper()
	w.relabel(node, "other")
	if after := w.pass(m).RequeueAfter; after != rollout.DeselectGracePeriod {
		w.Errorf("the next pass is due after %v", after)
	}
	w.clock.SetTime(w.clock.Now().Add(rollout.DeselectGracePeriod))
	w.pass(m)
}

func (w *world) module(name string) *v1beta1.Module {
	w.Helper()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"test": w.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: name},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "registry.example/" + name + ":${KERNEL_FULL_VERSION}"}},
			}},
		},
	}
	w.must(w.admin.Create(w.Context(), m))
	return m
}

// pass reconciles a Module once.
func (w *world) pass(m *v1beta1.Module) reconcile.Result {
	w.Helper()
	result, err := w.control.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	w.must(err)
	return result
}

// quiet fails the test when one more pass writes anything.
func (w *world) quiet(m *v1beta1.Module) {
	w.Helper()
	mark := w.env.Mark(w)
	w.pass(m)
	if writes := w.env.Writes(w, mark); len(writes) != 0 {
		w.Errorf("a pass with nothing to do wrote %v", writes)
	}
}

// problems are what is told of the Module's deliveries.
func (w *world) problems(m *v1beta1.Module) map[string]reasons.Problem {
	w.Helper()
	now := &v1beta1.Module{}
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), now))
	return facts.Problems(now, v1beta1.ProblemDeliveries)
}

// config is the node's NodeModulesConfig, or nil.
func (w *world) config(node *corev1.Node) *v1beta1.NodeModulesConfig {
	w.Helper()
	nmc := &v1beta1.NodeModulesConfig{}
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(node), nmc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return nmc
}

// entry is the Module's entry for the node, or nil.
func (w *world) entry(node *corev1.Node, m *v1beta1.Module) *v1beta1.NodeModuleSpec {
	w.Helper()
	if nmc := w.config(node); nmc != nil {
		for i := range nmc.Spec.Modules {
			if e := &nmc.Spec.Modules[i]; e.Name == m.Name && e.Namespace == m.Namespace {
				return e
			}
		}
	}
	return nil
}

// ordered is the entry, which must be there.
func (w *world) ordered(node *corev1.Node, m *v1beta1.Module) *v1beta1.NodeModuleSpec {
	w.Helper()
	e := w.entry(node, m)
	if e == nil {
		w.Fatalf("node %s has no entry of Module %s", node.Name, m.Name)
	}
	return e
}

// carriers are the Module's carriers. There is no kubelet here: a deleted one is gone at once.
func (w *world) carriers(m *v1beta1.Module) []corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	w.must(w.admin.List(w.Context(), &pods, client.InNamespace(w.namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name}))
	return pods.Items
}

// reap is the kubelet's part in the end of deleted pods.
func (w *world) reap() {
	w.Helper()
	var pods corev1.PodList
	w.must(w.admin.List(w.Context(), &pods, client.InNamespace(w.namespace)))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			w.must(w.admin.Delete(w.Context(), &pods.Items[i], client.GracePeriodSeconds(0)))
		}
	}
}

// agent writes a node's status as its agent does: a merge patch with all lists.
func (w *world) agent(node *corev1.Node, status v1beta1.NodeModulesConfigStatus) {
	w.Helper()
	text, err := json.Marshal(map[string]any{"status": map[string]any{
		"modules": status.Modules, "attempts": status.Attempts, "artifacts": status.Artifacts,
	}})
	w.must(err)
	c := w.env.Client(w, w.env.AgentConfig(w, node.Name))
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	w.must(c.Status().Patch(w.Context(), nmc, client.RawPatch(types.MergePatchType, text), client.FieldOwner("drover-agent")))
}

// loaded is the agent's status after it loaded the entries.
func loaded(entries ...*v1beta1.NodeModuleSpec) v1beta1.NodeModulesConfigStatus {
	var status v1beta1.NodeModulesConfigStatus
	for _, e := range entries {
		status.Modules = append(status.Modules, v1beta1.NodeModuleStatus{
			ModuleItem: e.ModuleItem, Config: &e.Config, BootID: "boot-1", LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
			Observed: &v1beta1.ObservedModule{BuildID: "b1"},
		})
		status.Artifacts = append(status.Artifacts, v1beta1.NodeArtifact{ID: e.Delivery.ID, Digest: "d"})
	}
	return status
}

// gone adds the acknowledgement of an unload.
func gone(status v1beta1.NodeModulesConfigStatus, m *v1beta1.Module) v1beta1.NodeModulesConfigStatus {
	status.Attempts = append(status.Attempts, v1beta1.NodeModuleAttempt{
		Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptAbsent, LastTransitionTime: metav1.NewTime(time.Unix(2, 0)),
	})
	return status
}

// load brings a Module to a node: delivered, loaded, at rest.
func (w *world) load(node *corev1.Node, m *v1beta1.Module) {
	w.Helper()
	w.pass(m)
	w.agent(node, loaded(w.ordered(node, m)))
	w.pass(m)
	w.reap()
}

func (w *world) exists(m *v1beta1.Module) bool {
	w.Helper()
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), &v1beta1.Module{})
	if apierrors.IsNotFound(err) {
		return false
	}
	w.must(err)
	return true
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
