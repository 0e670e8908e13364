// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

const nodeCount = 20

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// fleet is a running module controller, with the operator's own manager and cache, and nodes for
// it.
type fleet struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	namespace string
	nodes     []string
	stop      func()
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	e := env.Get(t)
	f := &fleet{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	for i := range nodeCount {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%02d", f.namespace, i), Labels: map[string]string{"test": f.namespace},
		}}
		f.must(f.admin.Create(t.Context(), node))
		node.Status.NodeInfo = corev1.NodeSystemInfo{
			KernelVersion: "6.1.0-37-amd64", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1.4",
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		f.must(f.admin.Status().Update(t.Context(), node))
		f.nodes = append(f.nodes, node.Name)
	}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

// start runs an operator until stop.
func (f *fleet) start() {
	f.Helper()
	options := &operator.Options{
		Namespace: env.OperatorNamespace, MetricsAddress: "0", ProbeAddress: "0", Controllers: []string{"*"},
		Orders: module.Options{AgentImage: env.AgentImage, DeliveryMaxInFlight: 5, Parallelism: 8},
	}
	mgr, err := operator.NewManager(f.env.Config(f, env.Operator), options)
	f.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, mgr, options, map[string]operator.Controller{
			"module": module.New(mgr.GetClient(), mgr.GetAPIReader(), options.Module(kube.Recorder{}, nil, nil)),
		})
	}()
	f.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
		f.stop = func() {}
	}
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// await polls until done, for at most a minute.
func (f *fleet) await(what string, done func(ctx context.Context) (bool, error)) {
	f.Helper()
	if err := wait.PollUntilContextTimeout(f.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		f.Fatalf("wait for %s: %v", what, err)
	}
}

// serve plays agents and kubelets until all nodes have answered the order: what is ordered is
// loaded or gone, and what is delivered is reported. It returns the largest number of carriers seen
// at a time.
func (f *fleet) serve(m *v1beta1.Module, answer func(*v1beta1.NodeModuleSpec) *v1beta1.NodeModulesConfigStatus) (most int) {
	f.Helper()
	answered := map[string]bool{}
	f.await("every node's order", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		f.must(f.admin.List(ctx, &pods, client.InNamespace(f.namespace)))
		standing := 0
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil {
				standing++
				continue
			}
			f.must(client.IgnoreNotFound(f.admin.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))))
		}
		most = max(most, standing)
		for _, name := range f.nodes {
			nmc := &v1beta1.NodeModulesConfig{}
			if err := f.admin.Get(ctx, client.ObjectKey{Name: name}, nmc); apierrors.IsNotFound(err) || answered[name] {
				continue
			} else if err != nil {
				return false, err
			}
			for i := range nmc.Spec.Modules {
				if status := answer(&nmc.Spec.Modules[i]); nmc.Spec.Modules[i].Name == m.Name && status != nil {
					f.report(name, status)
					answered[name] = true
				}
			}
		}
		return len(answered) == len(f.nodes), nil
	})
	return most
}

func (f *fleet) report(node string, status *v1beta1.NodeModulesConfigStatus) {
	f.Helper()
	text, err := json.Marshal(map[string]any{"status": map[string]any{
		"modules": status.Modules, "attempts": status.Attempts, "artifacts": status.Artifacts,
	}})
	f.must(err)
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: node}}
	agent := f.env.Client(f, f.env.AgentConfig(f, node))
	f.must(agent.Status().Patch(f.Context(), nmc, client.RawPatch(types.MergePatchType, text)))
}

func (f *fleet) noPodsLeft() {
	f.Helper()
	f.await("the end of all carriers", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := f.admin.List(ctx, &pods, client.InNamespace(f.namespace)); err != nil {
			return false, err
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil {
				f.must(client.IgnoreNotFound(f.admin.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))))
			}
		}
		return len(pods.Items) == 0, nil
	})
}

// writes are the operator's since a mark, but for the agents'.
func (f *fleet) writes(since env.Mark) map[env.Write]int {
	f.Helper()
	writes := f.env.Writes(f, since)
	delete(writes, env.Write{Agent: env.Agent, Verb: "patch", Resource: "nodemodulesconfigs/status"})
	return writes
}

func loaded(e *v1beta1.NodeModuleSpec) *v1beta1.NodeModulesConfigStatus {
	return &v1beta1.NodeModulesConfigStatus{
		Modules: []v1beta1.NodeModuleStatus{{
			ModuleItem: e.ModuleItem, Config: &e.Config, BootID: "boot-1", LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
		}},
		Artifacts: []v1beta1.NodeArtifact{{ID: e.Delivery.ID, Digest: "d"}},
	}
}

func unloaded(e *v1beta1.NodeModuleSpec) *v1beta1.NodeModulesConfigStatus {
	if e.State != v1beta1.NodeModuleAbsent {
		return nil
	}
	return &v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
		Namespace: e.Namespace, Name: e.Name, State: v1beta1.AttemptAbsent, LastTransitionTime: metav1.NewTime(time.Unix(2, 0)),
	}}}
}

// TestAFleetComesAndGoes runs the controller as the operator does, on its cache: every write is
// made once.
func TestAFleetComesAndGoes(t *testing.T) {
	f := newFleet(t)
	mark := f.env.Mark(t)
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"test": f.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "registry.example/nic:1"}},
			}},
		},
	}
	f.must(f.admin.Create(t.Context(), m))
	if most := f.serve(m, loaded); most > 5 {
		t.Errorf("%d carriers at a time, want at most 5", most)
	}
	f.noPodsLeft()
	want := map[env.Write]int{
		{Agent: env.Operator, Verb: "patch", Resource: "modules"}:            1,
		{Agent: env.Operator, Verb: "create", Resource: "pods"}:              nodeCount,
		{Agent: env.Operator, Verb: "patch", Resource: "nodemodulesconfigs"}: nodeCount,
		{Agent: env.Operator, Verb: "delete", Resource: "pods"}:              nodeCount,
	}
	if diff := cmp.Diff(want, f.writes(mark)); diff != "" {
		t.Errorf("writes to load (-want +got):\n%s", diff)
	}

	mark = f.env.Mark(t)
	f.must(f.admin.Delete(t.Context(), m))
	f.serve(m, unloaded)
	f.await("the end of the Module", func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(m), &v1beta1.Module{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	var left v1beta1.NodeModulesConfigList
	f.must(f.admin.List(t.Context(), &left))
	if len(left.Items) != 0 {
		t.Errorf("%d NodeModulesConfigs are left", len(left.Items))
	}
	got := f.writes(mark)
	// An order, its removal, and the end of the object. What was based on an old state is refused and
	// made again.
	for write, least := range map[env.Write]int{
		{Agent: env.Operator, Verb: "patch", Resource: "nodemodulesconfigs"}:  2 * nodeCount,
		{Agent: env.Operator, Verb: "delete", Resource: "nodemodulesconfigs"}: nodeCount,
	} {
		if got[write] < least || got[write] > 2*least {
			t.Errorf("%d times %s, want %d and few more", got[write], write, least)
		}
		delete(got, write)
	}
	want = map[env.Write]int{{Agent: env.Operator, Verb: "patch", Resource: "modules"}: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes to unload (-want +got):\n%s", diff)
	}
	f.env.AssertNoMasters(t)
}

func TestParseFlags(t *testing.T) {
	cases := map[string]struct {
		args []string
		bad  bool
	}{
		"the least":           {args: []string{"--agent-image=a:1"}},
		"no agent image":      {bad: true},
		"an unknown delivery": {args: []string{"--agent-image=a:1", "--delivery-mode=tar"}, bad: true},
		"an unknown mode":     {args: []string{"--agent-image=a:1", "--mode=wheel"}, bad: true},
		"a hub":               {args: []string{"--mode=hub"}},
		"a spoke":             {args: []string{"--mode=spoke", "--agent-image=a:1"}},
		"a spoke of nothing":  {args: []string{"--mode=spoke"}, bad: true},
		"no slots":            {args: []string{"--agent-image=a:1", "--delivery-max-in-flight=0"}, bad: true},
		"a stray argument":    {args: []string{"--agent-image=a:1", "run"}, bad: true},
		"profiles":            {args: []string{"--agent-image=a:1", "--pprof-bind-address=127.0.0.1:6060"}},
		"profiles by IPv6":    {args: []string{"--agent-image=a:1", "--pprof-bind-address=[::1]:6060"}},
		"profiles for all":    {args: []string{"--agent-image=a:1", "--pprof-bind-address=:6060"}, bad: true},
		"profiles by a name":  {args: []string{"--agent-image=a:1", "--pprof-bind-address=localhost:6060"}, bad: true},
		"taints that ask":     {args: []string{"--agent-image=a:1", "--unload-taints=example.com/upgrade,b"}},
		"no key of a taint":   {args: []string{"--agent-image=a:1", "--unload-taints=b,a:NoSchedule"}, bad: true},
		"verbosity and lists": {args: []string{"--agent-image=a:1", "-v=2", "--controllers=*,-plugin", "--leader-elect=false"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := operator.ParseFlags(tc.args); (err != nil) != tc.bad {
				t.Errorf("error %v, want one: %t", err, tc.bad)
			}
		})
	}
}
