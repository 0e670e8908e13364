// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const kernelVersion = "6.1.0-56-amd64"

// scene is one Module and its nodes; each test has its own, so that they share the API server.
type scene struct {
	*env.Env
	admin     client.Client
	namespace string
	module    *v1beta1.Module
	nodes     []string
}

// start runs the controller as the operator until the test ends.
func start(t *testing.T, e *env.Env) {
	t.Helper()
	startAt(t, e, time.Now)
}

// startAt runs it with another clock.
func startAt(t *testing.T, e *env.Env, now func() time.Time) {
	t.Helper()
	startWith(t, e, now, nil)
}

// startWith runs it with a gate, too.
func startWith(t *testing.T, e *env.Env, now func() time.Time, g *gate.Gate) {
	t.Helper()
	startOptions(t, e, node.Options{Now: now, Gate: g})
}

// startOptions runs it with all that a test wants to choose.
func startOptions(t *testing.T, e *env.Env, o node.Options) {
	t.Helper()
	options := &operator.Options{Controllers: []string{"*"}, MetricsAddress: "0", ProbeAddress: "0",
		Log: ktesting.NewLogger(t, ktesting.NewConfig())}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	o.Recorder = kube.NewRecorder(mgr.GetEventRecorder("drover-operator"))
	controller := node.New(mgr.GetClient(), o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, mgr, options, map[string]operator.Controller{"node": controller})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})
}

// tell writes what another controller found.
func (s *scene) tell(t *testing.T, part v1beta1.ProblemPart, found map[string]reasons.Problem) {
	t.Helper()
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(s.module), s.module); err != nil {
		t.Fatal(err)
	}
	if err := problems.Report(t.Context(), s.Client(t, s.Config(t, env.Operator)), s.module, part, found); err != nil {
		t.Fatal(err)
	}
}

func newScene(t *testing.T, nodes int) *scene {
	t.Helper()
	e := env.Get(t)
	s := &scene{Env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	selector := map[string]string{"example.com/scene": s.namespace}
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.namespace, i), Labels: selector}}
		if err := s.admin.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		s.boot(t, n.Name, "boot-1")
		s.nodes = append(s.nodes, n.Name)
	}
	s.module = &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: selector,
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				ContainerImage: "example.com/nic:$KERNEL_VERSION",
				KernelMappings: []v1beta1.KernelMapping{{Regexp: `^6\.`}},
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
			}},
		},
	}
	if err := s.admin.Create(t.Context(), s.module); err != nil {
		t.Fatal(err)
	}
	return s
}

// boot sets what a kubelet reports.
func (s *scene) boot(t *testing.T, name, id string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: id, KernelVersion: kernelVersion, OperatingSystem: "linux"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	if err := s.admin.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) item() v1beta1.ModuleItem {
	return v1beta1.ModuleItem{Namespace: s.namespace, Name: "nic", ServiceAccountName: "default"}
}

func config() v1beta1.ModuleConfig {
	return v1beta1.ModuleConfig{
		KernelVersion: kernelVersion, ContainerImage: "example.com/nic:" + kernelVersion,
		Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"},
	}
}

// order plays the controller that gives orders.
func (s *scene) order(t *testing.T, name string) {
	t.Helper()
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nmc.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: s.item(), Config: config()}}
	if err := s.admin.Create(t.Context(), nmc); err != nil {
		t.Fatal(err)
	}
}

// report plays the agent of a node, with the agent's identity.
func (s *scene) report(t *testing.T, name string, status v1beta1.NodeModulesConfigStatus) {
	t.Helper()
	agent := s.Client(t, s.AgentConfig(t, name))
	nmc := &v1beta1.NodeModulesConfig{}
	if err := agent.Get(t.Context(), client.ObjectKey{Name: name}, nmc); err != nil {
		t.Fatal(err)
	}
	before := nmc.DeepCopy()
	nmc.Status = status
	if err := agent.Status().Patch(t.Context(), nmc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) live(boot string) v1beta1.NodeModulesConfigStatus {
	return v1beta1.NodeModulesConfigStatus{
		Modules: []v1beta1.NodeModuleStatus{{ModuleItem: s.item(), Config: ptr.To(config()), BootID: boot, LastTransitionTime: metav1.Now()}},
	}
}

func (s *scene) failed(reason, message string) v1beta1.NodeModulesConfigStatus {
	return v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
		Namespace: s.namespace, Name: "nic", State: v1beta1.AttemptFailed, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
	}}}
}

func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (s *scene) awaitLabel(t *testing.T, name, label string, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("label %s on %s: %v", label, name, want), func(ctx context.Context) (bool, error) {
		n := &corev1.Node{}
		err := s.admin.Get(ctx, client.ObjectKey{Name: name}, n)
		_, got := n.Labels[label]
		return got == want, err
	})
}

func (s *scene) awaitCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var got *metav1.Condition
	eventually(t, fmt.Sprintf("condition %s=%s %s", kind, status, reason), func(ctx context.Context) (bool, error) {
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), s.module)
		got = meta.FindStatusCondition(s.module.Status.Conditions, kind)
		return got != nil && got.Status == status && got.Reason == reason, err
	})
	return *got
}

func TestLoadRebootAndHeartbeat(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	name, ready := s.nodes[0], v1beta1.ReadyLabel(s.namespace, "nic")
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoading)

	mark := s.Mark(t)
	s.order(t, name)
	s.report(t, name, s.live("boot-1"))
	s.awaitLabel(t, name, ready, true)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	want := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 1, DesiredNumber: 1, AvailableNumber: 1}
	if diff := cmp.Diff(want, s.module.Status.ModuleLoader); diff != "" {
		t.Errorf("moduleLoader (-want +got):\n%s", diff)
	}
	if got := s.Writes(t, mark)[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "nodes"}]; got != 1 {
		t.Errorf("%d label patches, want 1", got)
	}

	// Heartbeats are nobody's concern. What the boot that follows costs is all that is written: by
	// then they have been seen.
	mark = s.Mark(t)
	s.boot(t, name, "boot-1")
	s.boot(t, name, "boot-1")
	s.boot(t, name, "boot-2")
	s.awaitLabel(t, name, ready, false)
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoading)
	writes := s.Writes(t, mark)
	for _, resource := range []string{"nodes", "modules/status"} {
		if got := writes[env.Write{Agent: "drover-operator", Verb: "patch", Resource: resource}]; got != 1 {
			t.Errorf("%d patches of %s for two heartbeats and a boot, want 1", got, resource)
		}
	}
	s.report(t, name, s.live("boot-2"))
	s.awaitLabel(t, name, ready, true)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	s.AssertNoMasters(t)
}

func TestFailuresBecomeConditionsAndEvents(t *testing.T) {
	s := newScene(t, 5)
	start(t, s.Env)
	for _, name := range s.nodes[:4] {
		s.order(t, name)
		s.report(t, name, s.failed(v1beta1.ReasonUnknownSymbol, "nic: unknown symbol nic_magic\n[ kernel line"))
	}
	s.tell(t, v1beta1.ProblemDeliveries, map[string]reasons.Problem{
		s.nodes[4]: {Reason: v1beta1.ReasonImageNotFound, Message: "no such image"},
	})
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol)
	want := fmt.Sprintf("Live on 0 of 5 nodes; UnknownSymbol on %s, %s, %s and 1 more: nic: unknown symbol nic_magic (kernel: [ kernel "+
		"line); "+
		"ImageNotFound on %s: no such image",
		s.nodes[0], s.nodes[1], s.nodes[2], s.nodes[4])
	// Reports arrive one by one, and each may be told of before the next.
	message := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("message (-want +got):\n%s", cmp.Diff(want, message))
		}
	})
	eventually(t, "all nodes are told of", func(ctx context.Context) (bool, error) {
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), s.module)
		message = meta.FindStatusCondition(s.module.Status.Conditions, v1beta1.ConditionReady).Message
		return message == want, err
	})
	eventually(t, "one event per change", func(ctx context.Context) (bool, error) {
		var events eventsv1.EventList
		err := s.admin.List(ctx, &events, client.InNamespace(s.namespace))
		for i := range events.Items {
			if events.Items[i].Reason == v1beta1.ReasonUnknownSymbol && events.Items[i].Regarding.Name == "nic" {
				return true, err
			}
		}
		return false, err
	})
}

// TestLongMessagesReachEvents: a condition may say more than the API server accepts as an event's
// note.
func TestLongMessagesReachEvents(t *testing.T) {
	s := newScene(t, 5)
	for i, reason := range []string{
		v1beta1.ReasonUnknownSymbol, v1beta1.ReasonLoadFailed, v1beta1.ReasonTimeout, v1beta1.ReasonNoSuchDevice, v1beta1.ReasonSignatureRejected,
	} {
		s.order(t, s.nodes[i])
		s.report(t, s.nodes[i], s.failed(reason, strings.Repeat("ß", 200)))
	}
	start(t, s.Env)
	condition := s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoadFailed)
	if len(condition.Message) <= 1024 {
		t.Fatalf("a message of %d bytes shows nothing", len(condition.Message))
	}
	eventually(t, "the event", func(ctx context.Context) (bool, error) {
		var list eventsv1.EventList
		err := s.admin.List(ctx, &list, client.InNamespace(s.namespace))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == v1beta1.ReasonLoadFailed && strings.HasPrefix(e.Note, condition.Message[:900])
		}), err
	})
}

func TestRestartWritesNothing(t *testing.T) {
	s := newScene(t, 2)
	t.Run("first", func(t *testing.T) {
		start(t, s.Env)
		for _, name := range s.nodes {
			s.order(t, name)
			s.report(t, name, s.live("boot-1"))
		}
		s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
		for _, name := range s.nodes {
			s.awaitLabel(t, name, v1beta1.ReadyLabel(s.namespace, "nic"), true)
		}
	})
	mark := s.Mark(t)
	t.Run("second", func(t *testing.T) {
		start(t, s.Env)
		// A Module that comes now is served after the first pass over what was there, and after its
		// pause.
		other := newScene(t, 1)
		other.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoading)
		other.order(t, other.nodes[0])
		other.report(t, other.nodes[0], other.live("boot-1"))
		other.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
	for _, request := range s.Requests(t, mark) {
		ofScene := request.ObjectRef.Namespace == s.namespace || slices.Contains(s.nodes, request.ObjectRef.Name)
		if request.Ours() && request.IsWrite() && ofScene {
			t.Errorf("written after a restart: %s %s", request.Verb, request.RequestURI)
		}
	}
}

func TestStaleAndDeprecatedLabelsGo(t *testing.T) {
	s := newScene(t, 1)
	name := s.nodes[0]
	patch := []byte(fmt.Sprintf(`{"metadata":{"labels":{"kmm.node.kubernetes.io/nic.ready":"","kmm.node.kubernetes.io/%s.nic.ready":"","example.com/kept":"x"}}}`, s.namespace))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.admin.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	start(t, s.Env)
	s.awaitLabel(t, name, "kmm.node.kubernetes.io/nic.ready", false)
	s.awaitLabel(t, name, v1beta1.ReadyLabel(s.namespace, "nic"), false)
	s.awaitLabel(t, name, "example.com/kept", true)
}
