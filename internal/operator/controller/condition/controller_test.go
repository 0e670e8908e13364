// SPDX-License-Identifier: Apache-2.0

package condition_test

import (
	"context"
	"fmt"
	"os"
	"strings"
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
	"github.com/drover-project/drover/internal/operator/controller/condition"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// scene is one node, which Modules of its namespace select.
type scene struct {
	*env.Env
	admin, agent    client.Client
	namespace, node string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "node-condition")
	s := &scene{Env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	s.node = s.namespace + "-0"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node, Labels: map[string]string{"example.com/scene": s.namespace}}}
	must(t, s.admin.Create(t.Context(), node))
	node.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-1", OperatingSystem: "linux"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	must(t, s.admin.Status().Update(t.Context(), node))
	s.agent = s.Client(t, s.AgentConfig(t, s.node))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *scene) start(t *testing.T) {
	t.Helper()
	options := &operator.Options{Controllers: []string{"*"}, MetricsAddress: "0", ProbeAddress: "0", NodeCondition: true,
		Log: ktesting.NewLogger(t, ktesting.NewConfig())}
	mgr, err := operator.NewManager(s.Config(t, env.Operator), options)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, mgr, options, map[string]operator.Controller{"condition": condition.New(mgr.GetClient(), nil, nil, nil)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})
}

func (s *scene) module(t *testing.T, name string) *v1beta1.Module {
	t.Helper()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/scene": s.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				ContainerImage: "example.com/nic:1", KernelMappings: []v1beta1.KernelMapping{{Regexp: "."}},
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
			}},
		},
	}
	must(t, s.admin.Create(t.Context(), m))
	return m
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
	must(t, err)
	before := config.DeepCopy()
	config.Status = status
	must(t, s.agent.Status().Patch(t.Context(), config, client.MergeFrom(before)))
}

// says is the condition, and whether the kubelet's is as it was.
func (s *scene) says(t *testing.T) string {
	t.Helper()
	node := &corev1.Node{}
	must(t, s.admin.Get(t.Context(), client.ObjectKey{Name: s.node}, node))
	said, ready := "none", false
	for _, c := range node.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Reason == "KubeletReady"
		if c.Type == v1beta1.NodeConditionKernelModules {
			said = string(c.Status) + " " + c.Message
			if c.LastTransitionTime.IsZero() {
				t.Error("the transition has no time")
			}
		}
	}
	if !ready {
		t.Error("the kubelet's condition is lost")
	}
	return said
}

func (s *scene) await(t *testing.T, want string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return s.says(t) == want, nil
	})
	if err != nil {
		t.Fatalf("%q, want %q", s.says(t), want)
	}
}

// TestConditionFollowsTheModules of a node, with one write per change and none in between, and goes
// with the last Module.
func TestConditionFollowsTheModules(t *testing.T) {
	s, other := newScene(t), newScene(t)
	s.start(t)
	s.await(t, "none")
	mark := s.Mark(t)
	nic, gpu := s.module(t, "nic"), s.module(t, "gpu")
	s.await(t, fmt.Sprintf("False Not ready: 2 of 2 Modules: %s/gpu, %s/nic", s.namespace, s.namespace))
	s.live(t, "nic")
	s.await(t, fmt.Sprintf("False Not ready: 1 of 2 Modules: %s/gpu", s.namespace))
	s.live(t, "nic", "gpu")
	s.await(t, "True Ready: 2 Modules")

	// A reboot: the kubelet says so before the agent does.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	boot := func(id string) {
		patch := []byte(`{"status":{"nodeInfo":{"bootID":"` + id + `"}}}`)
		must(t, s.admin.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, patch)))
	}
	boot("boot-2")
	s.await(t, fmt.Sprintf("False Not ready: 2 of 2 Modules: %s/gpu, %s/nic", s.namespace, s.namespace))
	boot("boot-1")
	s.await(t, "True Ready: 2 Modules")

	must(t, s.admin.Delete(t.Context(), gpu))
	s.await(t, "True Ready: 1 Module")
	must(t, s.admin.Delete(t.Context(), nic))
	s.await(t, "none")
	// What happens on another node after that shows that everything before it has been seen.
	other.module(t, "nic")
	other.await(t, fmt.Sprintf("False Not ready: 1 of 1 Module: %s/nic", other.namespace))

	written := env.Write{Agent: "drover-operator", Verb: "patch", Resource: "nodes/status"}
	writes := s.Writes(t, mark)
	// Eight changes; the two Modules, or a Module and its node, may be seen one after the other.
	if got := writes[written]; got < 8 || got > 10 {
		t.Errorf("%d writes, want 8, and at most 2 more: %v", got, writes)
	}
	s.AssertNoMasters(t)
}

// TestNothingIsWrittenTwice: a change of what is not asked writes nothing, nor does a new process.
func TestNothingIsWrittenTwice(t *testing.T) {
	s, other := newScene(t), newScene(t)
	s.module(t, "nic")
	s.live(t, "nic")
	t.Run("one process", func(t *testing.T) {
		s.start(t)
		s.await(t, "True Ready: 1 Module")
	})
	mark := s.Mark(t)
	t.Run("the next", func(t *testing.T) {
		s.start(t)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
		must(t, s.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
		s.live(t, "nic")
		other.module(t, "nic")
		other.await(t, fmt.Sprintf("False Not ready: 1 of 1 Module: %s/nic", other.namespace))
	})
	writes := s.Writes(t, mark)
	if got := writes[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "nodes/status"}]; got != 1 {
		t.Errorf("%d writes, want the other node's: %v", got, writes)
	}
}

// TestOnlyWithItsRole: the operator's own role does not hold this right.
func TestOnlyWithItsRole(t *testing.T) {
	content, err := os.ReadFile("../../../../config/rbac/operator_role.yaml")
	must(t, err)
	if strings.Contains(string(content), "nodes/status") {
		t.Error("config/rbac lets every operator write the status of nodes")
	}
}
