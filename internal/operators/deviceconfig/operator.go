// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operators/deviceconfig/nodeselector"
	"github.com/drover-project/drover/kit"
)

const (
	// Name of the operator, its Lease, its events and its field manager.
	Name = "deviceconfig-operator"
	// Finalizer keeps a DeviceConfig until its Module is gone.
	Finalizer = "example.com/module"
)

var failed = kit.NewGauge("he_sample_operator_reconciliation_failed",
	"1 while a DeviceConfig cannot be reconciled and somebody has to do something about it, otherwise 0.", "namespace", "device_config")

// Program is the operator's process.
func Program() kit.Program {
	return kit.Program{
		Name:        Name,
		AddToScheme: []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme},
		Requires:    []kit.Requirement{{Object: &v1alpha1.DeviceConfig{}}, {Object: &v1beta1.Module{}, Fields: moduleFields}},
		Setup:       func(mgr ctrl.Manager) error { return kit.Add(mgr, Operator(mgr.GetClient())) },
	}
}

// Operator says what a DeviceConfig becomes. reader may be a cache.
func Operator(reader client.Reader) kit.Operator[*v1alpha1.DeviceConfig] {
	return kit.Operator[*v1alpha1.DeviceConfig]{
		Name:      Name,
		New:       func() *v1alpha1.DeviceConfig { return &v1alpha1.DeviceConfig{} },
		Children:  []client.Object{&corev1.ServiceAccount{}, &v1beta1.Module{}},
		Check:     func(ctx context.Context, d *v1alpha1.DeviceConfig) error { return check(ctx, reader, d) },
		Desired:   desired,
		Observe:   observe,
		Finalizer: Finalizer,
		Watch:     watch,
		Ended: func(key types.NamespacedName, problem *kit.Problem) {
			value := 0.0
			if problem != nil && problem.Errored {
				value = 1
			}
			failed.Set(value, key.Namespace, key.Name)
		},
		Forget: func(key types.NamespacedName) { failed.Forget(key.Namespace, key.Name) },
	}
}

// check makes sure that no node is another DeviceConfig's and that the named ServiceAccount exists.
func check(ctx context.Context, reader client.Reader, d *v1alpha1.DeviceConfig) error {
	if err := nodeselector.Exclusive.Check(ctx, reader, d); err != nil {
		return err
	}
	name := d.Spec.ServiceAccountName
	if name == "" {
		return nil
	}
	err := reader.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		return kit.Refused(v1alpha1.ReasonServiceAccountNotFound,
			"ServiceAccount %s does not exist: create it, or remove spec.serviceAccountName", name)
	}
	if err != nil {
		return fmt.Errorf("get ServiceAccount %s: %w", name, err)
	}
	return nil
}

// observe: a DeviceConfig is as ready as its Module, the last child.
func observe(_ context.Context, _ *v1alpha1.DeviceConfig, children []client.Object) error {
	m, ok := children[len(children)-1].(*v1beta1.Module)
	if !ok {
		return fmt.Errorf("the last child is a %T, not a Module", children[len(children)-1])
	}
	return kit.ModuleReady(m)
}

// watch reconciles DeviceConfigs when their nodes or the presence of ServiceAccounts may change.
func watch(mgr ctrl.Manager, b *builder.Builder) *builder.Builder {
	c := mgr.GetClient()
	beside := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return requests(ctx, c, client.InNamespace(o.GetNamespace()))
	})
	presence := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return nodeselector.Exclusive.Watch(mgr, b).Watches(&corev1.ServiceAccount{}, beside, builder.WithPredicates(presence))
}

func requests(ctx context.Context, reader client.Reader, options ...client.ListOption) (all []reconcile.Request) {
	var list v1alpha1.DeviceConfigList
	if err := reader.List(ctx, &list, options...); err != nil { // a cache fails only when it stops
		klog.FromContext(ctx).Error(err, "List DeviceConfigs")
	}
	for i := range list.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}
