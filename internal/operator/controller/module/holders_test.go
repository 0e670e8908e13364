// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// holding is what the agent of a node reports that was told to change, and whose earlier kernel
// module pods hold; try counts. Without UIDs the agent is an older one, which names pods only.
func (w *world) holding(node *corev1.Node, m *v1beta1.Module, try int32, uids bool, pods ...*corev1.Pod) {
	w.Helper()
	status := w.live(w.ordered(node, m), time.Hour)
	status.Modules[0].Config.ContainerImage = "registry.example/nic:1"
	status.Modules[0].Observed.Delivery = "before"
	attempt := v1beta1.NodeModuleAttempt{
		Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse, Message: "in use",
		LastTransitionTime: metav1.NewTime(w.clock.Now()), Attempt: try,
	}
	for _, pod := range pods {
		attempt.Holders = append(attempt.Holders, pod.Namespace+"/"+pod.Name)
		if uids {
			attempt.HolderUIDs = append(attempt.HolderUIDs, string(pod.UID))
		}
	}
	status.Attempts = []v1beta1.NodeModuleAttempt{attempt}
	w.agent(node, status)
}

// TestHoldersAreEvicted: only those that the agent names, that run on its node, and that do not
// come back at once.
func TestHoldersAreEvicted(t *testing.T) {
	for name, uids := range map[string]bool{"by UID": true, "by an older agent's names": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.upgrade(v1beta1.DrainHolders)
			holder, daemon, other := w.app(node, "holder", "ReplicaSet"), w.app(node, "daemon", "DaemonSet"), w.app(node, "other", "ReplicaSet")
			away := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
			elsewhere := w.app(away, "elsewhere", "ReplicaSet")
			w.pass(m)
			if got := w.ordered(node, m).Config.ContainerImage; got != "registry.example/nic:2" {
				t.Fatalf("ordered %s", got)
			}
			w.holding(node, m, 1, uids, daemon, elsewhere, holder)

			w.restarted(m)

			for pod, want := range map[*corev1.Pod]bool{holder: true, daemon: false, other: false, elsewhere: false} {
				if w.gone(pod) != want {
					t.Errorf("pod %s gone: %t", pod.Name, !want)
				}
			}
			if is, by := w.cordoned(node); is || by != "" {
				t.Errorf("cordoned %t for %q", is, by)
			}
		})
	}
}

// TestAPodIsEvictedOnceForOneReport: one that comes back under its name, such as a StatefulSet's,
// stays until the agent says that it holds the kernel module, too.
func TestAPodIsEvictedOnceForOneReport(t *testing.T) {
	for name, uids := range map[string]bool{"by UID": true, "by an older agent's names": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.upgrade(v1beta1.DrainHolders)
			w.pass(m)
			db := w.app(node, "db-0", "StatefulSet")
			w.holding(node, m, 1, uids, db)
			w.pass(m)
			if !w.gone(db) {
				t.Fatal("whoever is named is not evicted")
			}

			db = w.app(node, "db-0", "StatefulSet")
			for range 3 {
				w.pass(m)
			}
			if w.gone(db) {
				t.Fatal("its successor is evicted by the same report")
			}
			if uids {
				w.restarted(m)
				if w.gone(db) {
					t.Fatal("its successor is evicted by the same report, by another process")
				}
			}

			w.holding(node, m, 2, uids, db)
			w.pass(m)
			if !w.gone(db) {
				t.Error("its successor is named and not evicted")
			}
		})
	}
}

// TestOnlyTheSeenPodIsEvicted: one that has taken its name meanwhile stays, and the pass after it
// sees who is there.
func TestOnlyTheSeenPodIsEvicted(t *testing.T) {
	w := newWorld(t)
	node, m := w.upgrade(v1beta1.DrainHolders)
	w.pass(m)
	db := w.app(node, "db-0", "StatefulSet")
	w.holding(node, m, 1, true, db)
	late := db
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, kind string, o, sub client.Object,
			opts ...client.SubResourceCreateOption) error {
			if kind == "eviction" && late == db {
				w.must(w.admin.Delete(ctx, db.DeepCopy()))
				late = w.app(node, "db-0", "StatefulSet")
			}
			return c.SubResource(kind).Create(ctx, o, sub, opts...)
		},
	}))
	w.pass(m)
	w.pass(m)
	if late == db || w.gone(late) {
		t.Errorf("came meanwhile: %t; it is evicted: %t", late != db, w.gone(late))
	}
	if problem, told := w.problems(m)[node.Name]; told && problem.Reason == v1beta1.ReasonDrainBlocked {
		t.Errorf("told %+v", problem)
	}
}

// TestAClaimIsOfOnePod: the pod for which a claim is reserved is evicted, and not one that has its
// name.
func TestAClaimIsOfOnePod(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	w := newWorld(t)
	node, m := w.upgrade(v1beta1.DrainHolders)
	driver := w.namespace + ".example.com"
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.DRA = &v1beta1.DRASpec{DriverName: driver, Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
	})
	w.control = module.New(w.operator, w.operator,
		module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true})
	user := w.app(node, "p", "StatefulSet")
	claim := w.claim(driver, node, "before")
	w.pass(m)
	if w.gone(user) {
		t.Error("a pod is evicted for its predecessor's claim")
	}
	claim.Status.ReservedFor[0].UID = user.UID
	w.must(w.admin.Status().Update(w.Context(), claim))
	w.pass(m)
	if !w.gone(user) {
		t.Error("the pod that has the claim is not evicted")
	}
}
