// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestAGoneNodesOrdersAreLookedAt: its NodeModulesConfig may be held by a finalizer of ours that
// only a pass of a Module which it names takes off, and that Module may be gone.
func TestAGoneNodesOrdersAreLookedAt(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	name := e.Namespace(t)
	config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	config.Spec.Modules = []v1beta1.NodeModuleSpec{{
		ModuleItem: v1beta1.ModuleItem{Namespace: name, Name: "gone"}, State: v1beta1.NodeModuleAbsent,
		Config: v1beta1.ModuleConfig{KernelVersion: "6", ContainerImage: "r/nic:6", Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"}},
	}}
	if err := admin.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), config); err != nil {
			t.Error(err)
		}
	})
	c := New(e.Client(t, e.Config(t, env.Operator)), nil, Options{})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)

	c.nodeEvent(t.Context(), q, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil)

	queued := make(chan reconcile.Request)
	go func() {
		request, _ := q.Get()
		queued <- request
	}()
	select {
	case request := <-queued:
		if request.Namespace != name || request.Name != "gone" {
			t.Errorf("queued %s", request)
		}
	case <-time.After(time.Minute):
		t.Error("no Module was queued")
	}
}
