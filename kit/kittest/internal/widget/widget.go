// SPDX-License-Identifier: Apache-2.0

// Package widget is the smallest operator that is one: kittest's own tests test it.
package widget

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// Kind of the custom resource.
var Kind = schema.GroupVersionKind{Group: "test.example.com", Version: "v1", Kind: "Widget"}

// owner of the fields that are written here.
const owner = client.FieldOwner("widget-operator")

// New is an empty Widget.
func New() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(Kind)
	return w
}

type reconciler struct{ client.Client }

// Program is the whole operator.
var Program = kit.Program{Name: "widget", AddToScheme: []func(*runtime.Scheme) error{v1beta1.AddToScheme}, Setup: setup}

func setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("widget").For(New()).Owns(&v1beta1.Module{}).Complete(&reconciler{mgr.GetClient()})
}

// Reconcile makes a Module, and says whether it is ready.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	w := New()
	if err := r.Get(ctx, request.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !w.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil
	}
	found := &v1beta1.Module{}
	err := r.Get(ctx, request.NamespacedName, found)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		m, err := module(w)
		if err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.Apply(ctx, client.ApplyConfigurationFromUnstructured(m), owner)
	}
	return ctrl.Result{}, r.report(ctx, w, meta.IsStatusConditionTrue(found.Status.Conditions, v1beta1.ConditionReady))
}

func module(w *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name, _, err := unstructured.NestedString(w.Object, "spec", "kernelModule")
	if err != nil {
		return nil, fmt.Errorf("read spec.kernelModule: %w", err)
	}
	selector, _, err := unstructured.NestedMap(w.Object, "spec", "selector")
	if err != nil {
		return nil, fmt.Errorf("read spec.selector: %w", err)
	}
	m := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": w.GetNamespace(), "name": w.GetName()},
		"spec": map[string]any{
			"selector": selector,
			"moduleLoader": map[string]any{"container": map[string]any{
				"modprobe": map[string]any{"moduleName": name},
				"kernelMappings": []any{map[string]any{"regexp": "^.+$", "containerImage": "registry.example.com/" + name +
					":1-${KERNEL_FULL_VERSION}"}},
			}},
		},
	}}
	m.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("Module"))
	m.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w, Kind)})
	return m, nil
}

func (r *reconciler) report(ctx context.Context, w *unstructured.Unstructured, ready bool) error {
	status := "False"
	if ready {
		status = "True"
	}
	conditions, _, err := unstructured.NestedSlice(w.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("read the conditions: %w", err)
	}
	if len(conditions) == 1 {
		if was, ok := conditions[0].(map[string]any); ok && was["status"] == status && was["observedGeneration"] == w.GetGeneration() {
			return nil
		}
	}
	told := New()
	told.SetNamespace(w.GetNamespace())
	told.SetName(w.GetName())
	told.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": status, "reason": "Observed", "message": "", "observedGeneration": w.GetGeneration(),
	}}}
	return r.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(told), owner, client.ForceOwnership)
}
