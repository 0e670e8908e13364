// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/testkit/env"
)

// forget takes a Module away without its unloading: somebody removed the finalizer by hand.
func (w *world) forget(m *v1beta1.Module) {
	w.Helper()
	w.must(w.admin.Delete(w.Context(), m))
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), m))
	m.Finalizers = nil
	w.must(w.admin.Update(w.Context(), m))
}

// reading is the operator's client with something changed in what it reads.
func (w *world) reading(change func(client.Object) error) client.WithWatch {
	return interceptor.NewClient(w.operator, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			return change(o)
		},
	})
}

func TestAnUnclaimedModuleStays(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	status := loaded(w.ordered(node, m))
	// As after the CRDs were deleted and came back: another Module made the object, this one is not
	// there yet.
	w.forget(m)
	nmc := w.config(node)
	nmc.Spec.Modules = nil
	w.must(w.admin.Update(t.Context(), nmc))
	status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptUnclaimed}}
	w.agent(node, status)
	w.quiet(m)

	// It leaves by being applied and deleted.
	m = w.module("nic")
	w.pass(m)
	if e := w.ordered(node, m); e.State != "" {
		t.Errorf("state %s: what is live is claimed", e.State)
	}
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent {
		t.Errorf("state %s, want an order to unload", e.State)
	}
}

func TestAModuleThatOnlyTheCacheLacksStays(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	stale := w.reading(func(o client.Object) error {
		if _, ok := o.(*v1beta1.Module); ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "modules"}, o.GetName())
		}
		return nil
	})
	w.control = module.New(stale, w.operator, module.Options{AgentImage: env.AgentImage})
	mark := w.env.Mark(t)
	if w.pass(m).RequeueAfter == 0 {
		t.Error("nothing would look again")
	}
	if writes := w.env.Writes(t, mark); len(writes) != 0 {
		t.Errorf("wrote %v", writes)
	}
	w.use(w.operator)
	w.quiet(m)

	w.forget(m)
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.Reason != nodeplan.ReasonDeleted {
		t.Errorf("state %s, reason %s: one that is really gone leaves", e.State, e.Reason)
	}
}

func TestModulesThatWentWithTheirDefinitionStay(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.forget(m)
	// The definition is younger than the order: with the old one, all Modules went.
	w.use(w.reading(func(o client.Object) error {
		if crd, ok := o.(*metav1.PartialObjectMetadata); ok {
			crd.CreationTimestamp = metav1.NewTime(w.config(node).CreationTimestamp.Add(time.Second))
		}
		return nil
	}))
	w.quiet(m)
}

func TestNothingIsUnloadedWhileTheCRDsLeave(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.must(w.admin.Delete(t.Context(), m))
	live := w.reading(func(o client.Object) error {
		if crd, ok := o.(*metav1.PartialObjectMetadata); ok {
			now := metav1.Now()
			crd.DeletionTimestamp = &now
		}
		return nil
	})
	// The cache does not show it yet, the API server does.
	w.control = module.New(w.operator, live, module.Options{AgentImage: env.AgentImage})
	w.quiet(m)
	// Now the cache does, too.
	w.use(live)
	w.pass(m)
	if e := w.ordered(node, m); e.State != "" {
		t.Errorf("state %s: deleting the CRDs must not unload", e.State)
	}
	if w.exists(m) {
		t.Error("the finalizer would keep the CRDs from going")
	}
}
