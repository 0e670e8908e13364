// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestAWebhookWithoutAServerIsNamed: KMM leaves one. What needs no change of the Module is done,
// the rest is told, and it goes on by itself when the webhook is gone.
func TestAWebhookWithoutAServerIsNamed(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-kmm"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "vmodule." + w.namespace + ".kmm.example.com",
			AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig:      admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: w.namespace, Name: "gone"}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{"kmm.sigs.x-k8s.io"}, APIVersions: []string{"v1beta1"}, Resources: []string{"modules"},
				},
			}},
		}},
	}
	w.must(w.admin.Create(t.Context(), hook))
	t.Cleanup(func() { w.must(client.IgnoreNotFound(w.admin.Delete(context.Background(), hook))) })
	w.until("the webhook refuses", func(ctx context.Context) bool {
		return apierrors.IsInternalError(w.admin.Patch(ctx, m.DeepCopy(),
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)), client.DryRunAll))
	})
	w.must(w.admin.Delete(t.Context(), m))

	w.pass(m) // orders to unload, which touches no Module
	entry := w.ordered(node, m)
	if entry.State != v1beta1.NodeModuleAbsent {
		t.Fatalf("state %q, want an order to unload", entry.State)
	}
	w.agent(node, v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
		Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptAbsent, LastTransitionTime: metav1.Now(),
	}}})
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
	w.until("the Module's finalizer is refused, and the Module told so", func(ctx context.Context) bool {
		_, err := w.control.Reconcile(ctx, request)
		p := w.problems(m)[v1beta1.AllNodes]
		return err != nil && p.Reason == v1beta1.ReasonWriteRefused &&
			strings.Contains(p.Message, "kubectl delete validatingwebhookconfiguration "+hook.Name)
	})
	if w.entry(node, m) != nil {
		t.Error("the order stays, though the node has answered")
	}

	w.must(w.admin.Delete(t.Context(), hook))
	w.until("the Module goes", func(ctx context.Context) bool {
		_, _ = w.control.Reconcile(ctx, request) // refused until the API server has noticed
		return apierrors.IsNotFound(w.admin.Get(ctx, request.NamespacedName, &v1beta1.Module{}))
	})
}

// TestAPolicyThatDeniesTheFinalizerIsNamed: without it, nothing is ordered.
func TestAPolicyThatDeniesTheFinalizerIsNamed(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	denies := interceptor.NewClient(w.operator, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if _, ok := o.(*v1beta1.Module); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "modules"}, o.GetName(), errors.New("policy: label team is missing"))
			}
			return c.Patch(ctx, o, p, options...)
		},
	})
	w.control = module.New(denies, w.operator,
		module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events)})

	if _, err := w.control.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}); err == nil {
		t.Error("it is not tried again")
	}

	p := w.problems(m)[v1beta1.AllNodes]
	if p.Reason != v1beta1.ReasonWriteRefused || !strings.Contains(p.Message, "label team is missing") {
		t.Errorf("the Module is told %+v", p)
	}
	if w.entry(node, m) != nil {
		t.Error("something is ordered")
	}
}

// until polls until done, for at most a minute.
func (w *world) until(what string, done func(ctx context.Context) bool) {
	w.Helper()
	condition := func(ctx context.Context) (bool, error) { return done(ctx), nil }
	err := wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, time.Minute, true, condition)
	if err != nil {
		w.Fatalf("wait until %s: %v", what, err)
	}
}
