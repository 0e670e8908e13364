// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
)

func TestNothingIsDeliveredUnsealed(t *testing.T) {
	missing := func(what string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: what}, module.SealPolicy)
	}
	ignore := admissionv1.Ignore
	cases := map[string]struct {
		get  func(client.Object) error
		says string
	}{
		"no policy": {says: "the admission policy drover-carriers is missing: apply config/policies", get: func(o client.Object) error {
			if _, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok {
				return missing("validatingadmissionpolicies")
			}
			return nil
		}},
		"no binding": {says: "the binding of the admission policy drover-carriers is missing", get: func(o client.Object) error {
			if _, ok := o.(*admissionv1.ValidatingAdmissionPolicyBinding); ok {
				return missing("validatingadmissionpolicybindings")
			}
			return nil
		}},
		"a policy that may fail open": {says: "does not have failurePolicy Fail", get: func(o client.Object) error {
			if p, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok {
				p.Spec.FailurePolicy = &ignore
			}
			return nil
		}},
		"a binding that only warns": {says: "does not deny everywhere", get: func(o client.Object) error {
			if b, ok := o.(*admissionv1.ValidatingAdmissionPolicyBinding); ok {
				b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			}
			return nil
		}},
		"no policy for reports": {says: "the admission policy drover-agent-status is missing: apply config/policies",
			get: func(o client.Object) error {
				if p, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok && p.Name == "drover-agent-status" {
					return missing("validatingadmissionpolicies")
				}
				return nil
			}},
		"a binding for reports that only warns": {says: "drover-agent-status does not deny everywhere", get: func(o client.Object) error {
			if b, ok := o.(*admissionv1.ValidatingAdmissionPolicyBinding); ok && b.Name == "drover-agent-status" {
				b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			}
			return nil
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if err := c.Get(ctx, key, o, opts...); err != nil {
						return err
					}
					return tc.get(o)
				},
			}))
			if again := w.pass(m).RequeueAfter; again <= 0 || again > time.Minute {
				t.Errorf("looks again after %s", again)
			}
			if len(w.carriers(m)) != 0 || w.config(node) != nil {
				t.Error("something was delivered without a seal")
			}
			p := w.problems(m)[v1beta1.AllNodes]
			if p.Reason != v1beta1.ReasonDeliveryRefused || !strings.Contains(p.Message, tc.says) {
				t.Errorf("problem %+v, want %q", p, tc.says)
			}
			w.use(w.operator)
			w.pass(m)
			if len(w.carriers(m)) != 1 || len(w.problems(m)) != 0 {
				t.Error("delivered once sealed")
			}
		})
	}
}

func TestARefusedCarrierIsReportedAndRests(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	tries := 0
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			tries++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota: pods"))
		},
	}))
	for range 3 {
		if after := w.pass(m).RequeueAfter; after <= 0 {
			t.Errorf("requeue after %s: nothing else would try again", after)
		}
	}
	if tries != 1 {
		t.Errorf("%d tries, want 1 in the first 10 seconds", tries)
	}
	p := w.problems(m)[node.Name]
	if p.Reason != v1beta1.ReasonDeliveryRefused || !strings.Contains(p.Message, "exceeded quota") {
		t.Errorf("problem %+v, want the words of the refusal", p)
	}
	if w.config(node) != nil {
		t.Error("no order without a carrier")
	}
	w.quiet(m) // it is told once
}

// TestARefusalIsHistoryOnceThereIsACarrier: an API server that was just started knows no policy's
// parameters for some seconds, and refuses. What the node waits for afterwards is another thing.
func TestARefusalIsHistoryOnceThereIsACarrier(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	refuses := true
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if refuses {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("failed to configure policy"))
			}
			return c.Create(ctx, object, options...)
		},
	}))
	w.pass(m)
	if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonDeliveryRefused {
		t.Fatalf("problem %+v", p)
	}
	refuses = false
	w.later(time.Minute)
	w.pass(m)
	if len(w.carriers(m)) != 1 || len(w.problems(m)) != 0 {
		t.Errorf("%d carriers, problems %+v", len(w.carriers(m)), w.problems(m))
	}
	w.quiet(m)
}

// TestACarrierFailsOnce, however often the API server refuses to delete it.
func TestACarrierFailsOnce(t *testing.T) {
	w := newWorld(t)
	w.node("a")
	m := w.module("nic")
	keep := true
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if keep {
				return apierrors.NewInternalError(errors.New("etcd has no leader"))
			}
			return c.Delete(ctx, object, options...)
		},
	}))
	w.pass(m)
	pod := &w.carriers(m)[0]
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "Node didn't have enough resource"}
	w.must(w.admin.Status().Update(t.Context(), pod))
	for range 5 {
		if _, err := w.control.Reconcile(t.Context(), request(m)); err == nil {
			t.Fatal("a carrier was not deleted, and nobody is told")
		}
	}
	keep = false

	if after := w.pass(m).RequeueAfter; after != 10*time.Second {
		t.Errorf("the next try is due after %s, want 10s: one carrier failed, once", after)
	}
}

// TestARestartForgetsNoProblem: what stood before is told until the image is there, by whoever asks
// for it, and is gone then.
func TestARestartForgetsNoProblem(t *testing.T) {
	w := newWorld(t)
	node, other, m := w.node("a"), w.node("b"), w.module("nic")
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota: pods"))
		},
	}))
	w.pass(m)
	told := w.problems(m)
	if len(told) != 2 || !strings.Contains(told[node.Name].Message, "exceeded quota") {
		t.Fatalf("told %+v", told)
	}
	w.use(w.operator) // another process, and the quota is enough now
	w.must(w.admin.Delete(t.Context(), other))
	w.pass(m)
	delete(told, other.Name)
	if got := w.problems(m); len(w.carriers(m)) != 1 || !maps.Equal(got, told) {
		t.Errorf("%d carriers, and %+v is told", len(w.carriers(m)), got)
	}
	w.quiet(m)
	w.agent(node, loaded(w.ordered(node, m)))
	w.pass(m)
	if got := w.problems(m); len(got) != 0 {
		t.Errorf("%+v is told of a node that has the image", got)
	}
	w.reap()
	w.quiet(m)
}

// TestARefusedOrderIsTold on the Module, for the node, until it is taken.
func TestARefusedOrderIsTold(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "kmm.sigs.x-k8s.io", Resource: "nodemodulesconfigs"}, "x",
		errors.New("policy says no"))
	for name, err := range map[string]error{
		"by a policy":  forbidden,
		"as invalid":   apierrors.NewInvalid(schema.GroupKind{Kind: "NodeModulesConfig"}, "x", nil),
		"as too large": apierrors.NewGenericServerResponse(http.StatusRequestEntityTooLarge, "patch", schema.GroupResource{}, "x", "", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return err
				},
			}))
			for range 2 {
				if _, failed := w.control.Reconcile(t.Context(), request(m)); failed == nil {
					t.Error("nothing would try again")
				}
				p := w.problems(m)[node.Name]
				if p.Reason != v1beta1.ReasonWriteRefused || !strings.Contains(p.Message, err.Error()) {
					t.Errorf("it tells %+v", w.problems(m))
				}
			}
			w.use(w.operator)
			w.pass(m)
			w.reap()
			w.pass(m)
			w.ordered(node, m)
			if p := w.problems(m); len(p) != 0 {
				t.Errorf("it still tells %+v", p)
			}
		})
	}
}

func TestErrorsOfTheAPIServer(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodemodulesconfigs"}, "x", errors.New("uid mismatch"))
	cases := map[string]struct {
		err     error
		returns bool
	}{
		"a conflict is tried again in silence": {err: conflict},
		"an overloaded server is an error":     {err: apierrors.NewTooManyRequestsError("slow down"), returns: true},
		"a timeout is an error":                {err: apierrors.NewTimeoutError("etcd", 1), returns: true},
		"so is anything unknown": {err: apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", schema.GroupResource{},
			"x", "", 0, true), returns: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return tc.err
				},
			}))
			result, err := w.control.Reconcile(t.Context(), request(m))
			if (err != nil) != tc.returns {
				t.Errorf("error %v, want one: %t", err, tc.returns)
			}
			if err == nil && result.RequeueAfter == 0 {
				t.Error("nothing would try again")
			}
			w.use(w.operator)
			w.pass(m)
			w.reap()
			w.pass(m)
			w.ordered(node, m)
		})
	}
}
