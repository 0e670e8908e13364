// SPDX-License-Identifier: Apache-2.0

package ptemplate

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates/status,verbs=patch
// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates/finalizers,verbs=update
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=ptemplates.pt.example.com;modules.kmm.sigs.x-k8s.io,verbs=get

// ReasonConsumersNotReady says that the kernel module is ready and some consumers are not.
const ReasonConsumersNotReady = "ConsumersNotReady"

var running = kit.NewGauge("ptemplate_consumers", "Pods of a Ptemplate that run and use its devices.", "namespace", "name")

// Program is the operator's process.
var Program = kit.Program{
	Name:        Name,
	AddToScheme: []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme},
	Requires: []kit.Requirement{
		{Object: &v1alpha1.Ptemplate{}},
		{Object: &v1beta1.Module{}, Fields: []string{
			"spec.selector", "spec.imageRepoSecret.name",
			"spec.moduleLoader.container.modprobe.moduleName", "spec.moduleLoader.container.modprobe.parameters",
			"spec.moduleLoader.container.kernelMappings.regexp", "spec.moduleLoader.container.kernelMappings.containerImage",
			"spec.devicePlugin.container.image", "spec.devicePlugin.container.env",
			"spec.devicePlugin.container.volumeMounts", "spec.devicePlugin.volumes",
		}},
	},
	// Others' pods are not kept in memory.
	Cache: func(o *cache.Options) {
		o.ByObject = map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: k8slabels.SelectorFromSet(k8slabels.Set{nameLabel: consumerName})},
		}
	},
	Setup: func(mgr ctrl.Manager) error {
		op := New(mgr.GetClient())
		err := kit.Requires(context.Background(), mgr.GetAPIReader(), mgr.GetScheme(), mgr.GetRESTMapper(), confinement)
		switch {
		case errors.Is(err, kit.ErrOutdated):
			op.Desired = unconfined
		case err != nil:
			return err
		}
		return kit.Add(mgr, op)
	},
}

// confinement is a field that upstream's Module lacks: there, every device plugin is privileged.
var confinement = kit.Requirement{Object: &v1beta1.Module{}, Fields: []string{"spec.devicePlugin.container.securityContext"}}

// New says what a Ptemplate becomes. pods lists the consumers' pods.
func New(pods client.Reader) kit.Operator[*v1alpha1.Ptemplate] {
	return kit.Operator[*v1alpha1.Ptemplate]{
		Name:     Name,
		New:      func() *v1alpha1.Ptemplate { return &v1alpha1.Ptemplate{} },
		Children: []client.Object{&v1beta1.Module{}, &appsv1.DaemonSet{}},
		Desired:  Desired,
		Observe: func(ctx context.Context, p *v1alpha1.Ptemplate, children []client.Object) error {
			return observe(ctx, pods, p, children)
		},
		Watch: func(_ ctrl.Manager, b *builder.Builder) *builder.Builder {
			return b.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ptemplateOf))
		},
		Forget: func(key types.NamespacedName) { running.Forget(key.Namespace, key.Name) },
	}
}

// ptemplateOf is the Ptemplate that a consumer's pod names.
func ptemplateOf(_ context.Context, pod client.Object) []reconcile.Request {
	l := pod.GetLabels()
	if l[nameLabel] != consumerName || l[instanceLabel] == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: l[instanceLabel]}}}
}

// observe fills the status, and returns why the Ptemplate is not ready.
func observe(ctx context.Context, pods client.Reader, p *v1alpha1.Ptemplate, children []client.Object) error {
	m, ok := children[0].(*v1beta1.Module)
	if !ok {
		return fmt.Errorf("expected a Module, got %T", children[0])
	}
	set, ok := children[1].(*appsv1.DaemonSet)
	if !ok {
		return fmt.Errorf("expected a DaemonSet, got %T", children[1])
	}
	var list corev1.PodList
	if err := pods.List(ctx, &list, client.InNamespace(p.Namespace), client.MatchingLabels(ConsumerLabels(p))); err != nil {
		return fmt.Errorf("list the consumers: %w", err)
	}
	p.Status.Consumers = consumers(set, list.Items)
	running.Set(float64(len(p.Status.Consumers)), p.Namespace, p.Name)
	if err := kit.ModuleReady(m); err != nil {
		return err
	}
	return consumersReady(set)
}

// consumersReady returns nil if each node has an up-to-date consumer that is ready.
func consumersReady(set *appsv1.DaemonSet) error {
	s := &set.Status
	if s.ObservedGeneration != set.Generation {
		return kit.Waiting(ReasonConsumersNotReady, "DaemonSet %s has changed, and Kubernetes has not looked at it yet", set.Name)
	}
	if s.DesiredNumberScheduled == 0 || s.NumberReady < s.DesiredNumberScheduled || s.UpdatedNumberScheduled < s.DesiredNumberScheduled {
		return kit.Waiting(ReasonConsumersNotReady,
			"Consumers are ready on %d of %d nodes, %d of them up to date: check the pods of DaemonSet %s",
			s.NumberReady, s.DesiredNumberScheduled, s.UpdatedNumberScheduled, set.Name)
	}
	return nil
}
