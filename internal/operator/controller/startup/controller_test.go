// SPDX-License-Identifier: Apache-2.0

package startup_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/startup"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// The key is one of those that the operator's list allows.
const key, listed = "example.com/starting", "example.com/*"

// scene is one node with a startup taint, and Modules that name it.
type scene struct {
	*env.Env
	admin     client.Client
	agent     client.Client
	namespace string
	node      string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := env.Get(t)
	s := &scene{Env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	s.node = s.namespace + "-0"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.node, Labels: map[string]string{"example.com/scene": s.namespace}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.com/team", Value: "a", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: key, Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	if err := s.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-1", OperatingSystem: "linux"}
	if err := s.admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s.agent = s.Client(t, s.AgentConfig(t, s.node))
	return s
}

func (s *scene) start(t *testing.T) {
	t.Helper()
	taints, err := modulepolicy.ParseTaints(listed)
	if err != nil {
		t.Fatal(err)
	}
	options := &operator.Options{Controllers: []string{"*"}, MetricsAddress: "0", ProbeAddress: "0",
		Log: ktesting.NewLogger(t, ktesting.NewConfig())}
	mgr, err := operator.NewManager(s.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, mgr, options, map[string]operator.Controller{"startup": startup.New(mgr.GetClient(), taints, nil, nil)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})
}

func (s *scene) module(t *testing.T, name string, change ...func(*v1beta1.Module)) {
	t.Helper()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/scene": s.namespace}, StartupTaint: key,
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				ContainerImage: "example.com/nic:1", KernelMappings: []v1beta1.KernelMapping{{Regexp: "."}},
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
			}},
		},
	}
	for _, f := range change {
		f(m)
	}
	if err := s.admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// live plays operator and agent: these Modules are ordered and live.
func (s *scene) live(t *testing.T, names ...string) {
	t.Helper()
	config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	var status v1beta1.NodeModulesConfigStatus
	for _, name := range names {
		item := v1beta1.ModuleItem{Namespace: s.namespace, Name: name, ServiceAccountName: "default"}
		load := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "example.com/nic:1", ImagePullPolicy: corev1.PullIfNotPresent}
		config.Spec.Modules = append(config.Spec.Modules, v1beta1.NodeModuleSpec{ModuleItem: item, Config: load})
		status.Modules = append(status.Modules,
			v1beta1.NodeModuleStatus{ModuleItem: item, Config: &load, BootID: "boot-1", LastTransitionTime: metav1.Now()})
	}
	old := &v1beta1.NodeModulesConfig{}
	err := s.admin.Get(t.Context(), client.ObjectKey{Name: s.node}, old)
	switch {
	case apierrors.IsNotFound(err):
		err = s.admin.Create(t.Context(), config)
	case err == nil:
		old.Spec, config = config.Spec, old
		err = s.admin.Update(t.Context(), config)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := config.DeepCopy()
	config.Status = status
	if err := s.agent.Status().Patch(t.Context(), config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) patchNode(t *testing.T, patch string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	if err := s.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) taints(t *testing.T) (keys []string) {
	t.Helper()
	node := &corev1.Node{}
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: s.node}, node); err != nil {
		t.Fatal(err)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady { // the API server's own, on every new node
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

func (s *scene) await(t *testing.T, want ...string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return fmt.Sprint(s.taints(t)) == fmt.Sprint(want), nil
	})
	if err != nil {
		t.Fatalf("taints %v, want %v", s.taints(t), want)
	}
}

// TestNothingLandsBeforeTheLastModuleIsReady: the taint stays until the last Module's plugin is
// ready, goes with one write, and is nobody's business after that.
func TestNothingLandsBeforeTheLastModuleIsReady(t *testing.T) {
	s, other := newScene(t), newScene(t)
	s.module(t, "nic")
	s.module(t, "gpu", func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	})
	other.module(t, "nic")
	s.start(t)
	// Each step of the other node shows that everything before it has been seen.
	sees := func() {
		t.Helper()
		other.patchNode(t, `{"spec":{"taints":[{"key":"`+key+`","effect":"NoSchedule"}]}}`)
		other.live(t)
		other.live(t, "nic")
		other.await(t)
	}
	s.live(t, "nic")
	sees()
	s.await(t, "example.com/team", key)
	s.live(t, "nic", "gpu")
	sees()
	s.await(t, "example.com/team", key)

	mark := s.Mark(t)
	label := v1beta1.DevicePluginReadyLabel(s.namespace, "gpu")
	s.patchNode(t, `{"metadata":{"labels":{"`+label+`":""}}}`)
	s.await(t, "example.com/team")
	// It flaps: nothing is put on again, and nothing is written.
	s.patchNode(t, `{"metadata":{"labels":{"`+label+`":null}}}`)
	s.live(t)
	s.live(t, "nic", "gpu")
	s.patchNode(t, `{"metadata":{"labels":{"`+label+`":""}}}`)
	writes := s.Writes(t, mark)
	sees()
	s.await(t, "example.com/team")
	if got := writes[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "nodes"}]; got != 1 {
		t.Errorf("%d writes, want 1: %v", got, writes)
	}
	// Whoever puts it on again, for a reboot say, has it taken off again when all is well.
	s.patchNode(t, `{"spec":{"taints":[{"key":"`+key+`","effect":"NoExecute"},{"key":"example.com/team","effect":"PreferNoSchedule"}]}}`)
	s.await(t, "example.com/team")
	s.AssertNoMasters(t)
}

// TestATaintThatIsNotListedStays: rights on the Modules of one namespace take no other taint off,
// and keep none on. The Module says so.
func TestATaintThatIsNotListedStays(t *testing.T) {
	s := newScene(t)
	const quarantine = "security.example.org/quarantine"
	own := s.namespace + modulepolicy.OwnTaints + "gpu"
	foreign := "another" + modulepolicy.OwnTaints + "gpu"
	bare := func(taint string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) {
			m.Spec.ModuleLoader, m.Spec.StartupTaint = nil, taint
			m.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
	}
	s.patchNode(t, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute"},{"key":%q,"effect":"NoSchedule"},`+
		`{"key":%q,"effect":"NoSchedule"},{"key":%q,"effect":"NoSchedule"}]}}`, quarantine, foreign, own, key))
	s.module(t, "thief", bare(quarantine))
	s.module(t, "neighbour", bare(foreign))
	s.module(t, "own", bare(own))
	s.module(t, "listed", bare(key))
	s.start(t)
	s.await(t, quarantine, foreign)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		m := &v1beta1.Module{}
		err := s.admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "thief"}, m)
		p := facts.Problem(m, v1beta1.ProblemStartupTaint)
		return p != nil && p.Reason == v1beta1.ReasonStartupTaintDenied, err
	})
	if err != nil {
		t.Errorf("the Module does not say that its taint is refused: %v", err)
	}
	s.AssertNoMasters(t)
}
