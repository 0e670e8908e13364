// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// turn brings a Module with drain: Node to nodes a, b and c, and a change so far that a has it and
// that b and c have their turn.
func (w *world) turn() (b, c *corev1.Node, m *v1beta1.Module) {
	w.Helper()
	nodes := []*corev1.Node{w.node("a"), w.node("b"), w.node("c")}
	m = w.module("nic")
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: ptr.To(intstr.FromInt32(2)), Drain: v1beta1.DrainNode}
	})
	work := func() {
		w.pass(m)
		for _, node := range nodes {
			w.agent(node, w.live(w.ordered(node, m), time.Hour))
		}
		w.pass(m)
		w.reap()
	}
	work()
	w.change(m, to("registry.example/nic:2"))
	work() // to the first node, ahead of its turn
	w.pass(m)
	w.agent(nodes[0], w.live(w.ordered(nodes[0], m), time.Hour))
	w.pass(m) // to the others
	for _, node := range nodes {
		w.agent(node, w.live(w.ordered(node, m), time.Hour))
		if want := node == nodes[0]; (w.ordered(node, m).Config.ContainerImage == "registry.example/nic:2") != want {
			w.Fatalf("node %s has the change: %t", node.Name, !want)
		}
	}
	return nodes[1], nodes[2], m
}

// denied has the API server itself refuse evictions in the world's namespace.
func (w *world) denied(pod *corev1.Pod) {
	w.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-evictions-" + w.namespace}}
	policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods/eviction"}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "the quarter ends"}},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
	binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}
	for _, o := range []client.Object{policy, binding} {
		w.must(w.admin.Create(w.Context(), o))
		w.Cleanup(func() {
			if err := w.env.Admin(w.T).Delete(context.Background(), o); err != nil {
				w.Error(err)
			}
		})
	}
	w.must(wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		try := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"}}}
		return w.admin.SubResource("eviction").Create(ctx, pod, try) != nil, nil
	}))
}

// failing is the operator's client with an API server that refuses evictions, or writes of nodes.
func (w *world) failing(evictions, cordons error) client.Client {
	return interceptor.NewClient(w.operator, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, kind string, o, sub client.Object,
			opts ...client.SubResourceCreateOption) error {
			if kind == "eviction" && evictions != nil {
				return evictions
			}
			return c.SubResource(kind).Create(ctx, o, sub, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*corev1.Node); ok && cordons != nil && strings.HasSuffix(o.GetName(), "-b") {
				return cordons
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
}

// TestARefusalStopsOnlyItsNode: whoever refuses, it is told of the node, once per pass, and the
// other nodes go on.
func TestARefusalStopsOnlyItsNode(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cases := map[string]struct {
		given func(*world, *corev1.Pod)
		says  []string
	}{
		"a budget that wants to be asked again later": {func(w *world, _ *corev1.Pod) {
			w.budget("app", 0)
			pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "budget-of-app"}}
			w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(pdb), pdb))
			pdb.Status.ObservedGeneration--
			w.must(w.admin.Status().Update(w.Context(), pdb)) // as long as its controller is behind, the answer has a Retry-After
		}, []string{"/app ", "budget-of-app"}},
		"an admission policy": {func(w *world, pod *corev1.Pod) { w.denied(pod) }, []string{"/app ", "no-evictions-", "the quarter ends"}},
		"a webhook without a code": {func(w *world, _ *corev1.Pod) {
			w.use(w.failing(apierrors.NewBadRequest(`admission webhook "sre.example.com" denied the request`), nil))
		}, []string{"/app ", "sre.example.com"}},
		"an API server with a fault": {func(w *world, _ *corev1.Pod) {
			w.use(w.failing(apierrors.NewInternalError(errors.New("misconfigured budgets")), nil))
		}, []string{"/app ", "misconfigured budgets"}},
		"a cordon that is not allowed": {func(w *world, _ *corev1.Pod) {
			w.use(w.failing(nil, apierrors.NewForbidden(pods, "x", errors.New("nodes are frozen"))))
		}, []string{"cannot be cordoned", "nodes are frozen"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b, c, m := w.turn()
			app, before := w.app(b, "app", "ReplicaSet"), w.ordered(b, m).Config.ContainerImage
			tc.given(w, app)
			mark := w.env.Mark(w)

			w.pass(m)

			if got := w.ordered(c, m).Config.ContainerImage; got != "registry.example/nic:2" {
				t.Errorf("the other node was ordered %s", got)
			}
			if got := w.ordered(b, m).Config.ContainerImage; got != before || w.gone(app) {
				t.Errorf("the node was ordered %s, its pod is gone: %t", got, w.gone(app))
			}
			problem := w.problems(m)[b.Name]
			if problem.Reason != v1beta1.ReasonDrainBlocked {
				t.Errorf("told %+v", problem)
			}
			for _, want := range tc.says {
				if !strings.Contains(problem.Message, want) {
					t.Errorf("%q does not say %q", problem.Message, want)
				}
			}
			asked := 0
			for write, n := range w.env.Writes(w, mark) {
				if write.Resource == "pods/eviction" {
					asked += n
				}
			}
			if asked > 1 {
				t.Errorf("asked %d times within a pass", asked)
			}
		})
	}
}

// TestADrainFreesClaims: the rollout waits for claims, so whoever holds one is evicted, and nobody
// else by a drain of holders.
func TestADrainFreesClaims(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	for policy, others := range map[v1beta1.DrainPolicy]bool{v1beta1.DrainNode: true, v1beta1.DrainHolders: false} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			node, m := w.upgrade(policy)
			driver := w.namespace + ".example.com"
			w.change(m, func(m *v1beta1.Module) {
				m.Spec.DRA = &v1beta1.DRASpec{DriverName: driver, Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
			})
			w.control = module.New(w.operator, w.operator,
				module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true})
			user, other := w.app(node, "p", "ReplicaSet"), w.app(node, "other", "ReplicaSet")
			claim, before := w.claim(driver, node, user.UID), w.ordered(node, m).Config.ContainerImage

			w.pass(m)
			if got := w.ordered(node, m); got.Config.ContainerImage != before || got.State == v1beta1.NodeModuleDraining {
				t.Errorf("with a claim, the order is %s %s", got.State, got.Config.ContainerImage)
			}
			if !w.gone(user) || w.gone(other) != others {
				t.Errorf("gone: who holds the claim %t, who does not %t", w.gone(user), w.gone(other))
			}

			claim.Status.ReservedFor = nil
			w.must(w.admin.Status().Update(w.Context(), claim))
			w.pass(m) // the driver leaves
			w.pass(m)
			if got := w.ordered(node, m).Config.ContainerImage; got != "registry.example/nic:2" {
				t.Errorf("without a claim, the order is %s", got)
			}
		})
	}
}

// TestADrainLosesNothingUnasked: what nobody would bring back keeps its node, untouched, and what
// ends by itself is waited for.
func TestADrainLosesNothingUnasked(t *testing.T) {
	job := map[string]string{"app": "job"}
	cases := map[string]struct {
		owner   string
		options *v1beta1.DrainOptions
		says    string // nothing: everything leaves
		cordon  bool
	}{
		"a bare pod":               {"", nil, "drainOptions.force", false},
		"a bare pod, forced":       {"", &v1beta1.DrainOptions{Force: true}, "", true},
		"a job that is waited for": {"Job", &v1beta1.DrainOptions{WaitForCompletion: job}, "drainOptions.waitForCompletion", true},
		"a job that is not":        {"Job", &v1beta1.DrainOptions{WaitForCompletion: map[string]string{"app": "x"}}, "", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.upgrade(v1beta1.DrainNode)
			w.change(m, func(m *v1beta1.Module) { m.Spec.Rollout.DrainOptions = tc.options })
			pod, app, before := w.app(node, "job", tc.owner), w.app(node, "app", "ReplicaSet"), w.ordered(node, m).Config.ContainerImage

			w.pass(m)

			problem := w.problems(m)[node.Name]
			if gone := tc.says == ""; w.gone(pod) != gone || w.gone(app) != gone || !strings.Contains(problem.Message, tc.says) {
				t.Errorf("gone %t, %t; told %+v", w.gone(pod), w.gone(app), problem)
			}
			if is, _ := w.cordoned(node); is != tc.cordon || w.ordered(node, m).Config.ContainerImage != before {
				t.Errorf("cordoned %t, ordered %+v", is, w.ordered(node, m))
			}
			if tc.says == "" {
				return
			}
			w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			pod.Status.Phase = corev1.PodSucceeded
			w.must(w.admin.Status().Update(t.Context(), pod))
			w.pass(m)
			w.pass(m)
			if got := w.ordered(node, m).Config.ContainerImage; got != "registry.example/nic:2" || !w.gone(app) {
				t.Errorf("after its end: ordered %s", got)
			}
		})
	}
}

// TestADrainThatTakesTooLongIsTold, with what it waits for, and goes on.
func TestADrainThatTakesTooLongIsTold(t *testing.T) {
	w := newWorld(t)
	node, m := w.upgrade(v1beta1.DrainNode)
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.Rollout.DrainOptions = &v1beta1.DrainOptions{
			WaitForCompletion: map[string]string{"app": "job"}, Timeout: &metav1.Duration{Duration: time.Hour},
		}
	})
	w.app(node, "job", "Job")
	for _, step := range []struct {
		after time.Duration
		then  string
	}{{0, v1beta1.ReasonInUse}, {59 * time.Minute, v1beta1.ReasonInUse}, {time.Minute, v1beta1.ReasonDrainBlocked}} {
		w.clock.SetTime(w.clock.Now().Add(step.after))
		w.pass(m)
		problem := w.problems(m)[node.Name]
		if problem.Reason != step.then || !strings.Contains(problem.Message, "/job ") {
			t.Errorf("after %v more: %+v", step.after, problem)
		}
	}
}
