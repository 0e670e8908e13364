// SPDX-License-Identifier: Apache-2.0

// Package plugin runs the device plugins and DRA drivers of Modules.
//
// Reads: Module, DaemonSet, ServiceAccount, DeviceClass, NodeModulesConfig and the plugins' pods.
// Writes, for each Module: a DaemonSet, a ServiceAccount if the Module names none, its RoleBinding
// on OpenShift, and DeviceClasses; what keeps it from that, in the Module's status. It ends plugin
// pods that outlived the kernel module they started on.
package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete

// Controller keeps the device plugin or DRA driver of each Module.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
}

// have is what exists for one Module, in whatever role.
type have struct {
	daemonSets []*appsv1.DaemonSet
	accounts   []*corev1.ServiceAccount
	classes    []*resourcev1.DeviceClass
	// serving are ServiceAccounts of drivers that cannot go yet: they are no longer in accounts.
	serving []string
}

// Reconcile makes one Module's workload what it should be.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	module := &v1beta1.Module{}
	if err := c.client.Get(ctx, request.NamespacedName, module); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, c.orphans(ctx, request.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("get Module: %w", err)
	}
	if placement.Paused(module) && module.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	now, err := c.observe(ctx, module)
	if err != nil {
		return reconcile.Result{}, err
	}
	if workloadOf(module) == nil || module.DeletionTimestamp != nil {
		result, problem, err := c.removeAll(ctx, module, now)
		return result, errors.Join(err, c.report(ctx, module, problem))
	}
	if module.Spec.DRA != nil && !c.options.DRA {
		return reconcile.Result{}, c.report(ctx, module, &reasons.Problem{Reason: v1beta1.ReasonUnsupported, Message: unsupported})
	}
	return c.serve(ctx, module, now)
}

// serve makes what the Module asks for. Others' DeviceClasses keep back only themselves.
func (c *Controller) serve(ctx context.Context, module *v1beta1.Module, now *have) (reconcile.Result, error) {
	account := ServiceAccount(module)
	allowed, err := c.allowed(ctx, module)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods := Pods{c.options.AgentImage, allowed.priority}
	daemonSet, err := wish(module, pods, now.daemonSets)
	if err != nil {
		return reconcile.Result{}, err
	}
	if allowed.denied != nil {
		if stands, err := c.stands(module, pods, daemonSet, now); !stands || err != nil {
			return reconcile.Result{}, errors.Join(err, c.report(ctx, module, allowed.denied))
		}
	}
	if problem, err := c.outlived(ctx, daemonSet, find(now.daemonSets, daemonSet.Name)); problem != nil || err != nil {
		return reconcile.Result{RequeueAfter: claimDelay}, errors.Join(err, c.report(ctx, module, problem))
	}
	taken, err := c.ensureClasses(ctx, module, now.classes)
	if err != nil {
		return c.refused(ctx, module, "the DeviceClasses", err)
	}
	if err := c.ensure(ctx, module, now, account, daemonSet, pods); err != nil {
		return c.refused(ctx, module, "DaemonSet "+daemonSet.Name, err)
	}
	kept, err := c.keepDriver(ctx, module, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, problem := conflict(taken)
	if kept != "" && (result.RequeueAfter == 0 || result.RequeueAfter > claimDelay) {
		result.RequeueAfter = claimDelay
	}
	return result, errors.Join(c.report(ctx, module, problem), c.prune(ctx, module, now, account, daemonSet))
}

// ensure applies what differs. account is nil when the Module names one.
func (c *Controller) ensure(ctx context.Context, module *v1beta1.Module, now *have, account *corev1.ServiceAccount,
	daemonSet *appsv1.DaemonSet, pods Pods) error {
	if account != nil && find(now.accounts, account.Name) == nil {
		if err := c.mayTake(ctx, module, "ServiceAccount", account.Name, &corev1.ServiceAccount{}); err != nil {
			return err
		}
		config, err := kube.Convert[coreapply.ServiceAccountApplyConfiguration](account)
		if err != nil {
			return fmt.Errorf("convert the ServiceAccount: %w", err)
		}
		if err := kube.Known(ctx, func() error { return kube.Apply(ctx, c.client, kube.OwnerPlugin, config) }); err != nil {
			return fmt.Errorf("apply ServiceAccount %s: %w", account.Name, err)
		}
	}
	if err := c.bind(ctx, module, account); err != nil {
		return err
	}
	current := find(now.daemonSets, daemonSet.Name)
	if current == nil {
		if err := c.mayTake(ctx, module, "DaemonSet", daemonSet.Name, &appsv1.DaemonSet{}); err != nil {
			return err
		}
	} else if stays, err := stays(module, pods, daemonSet, current); stays || err != nil {
		return err
	} else if _, ours := current.Annotations[kube.HashAnnotation]; !ours {
		if err := c.own(ctx, current); err != nil {
			return err
		}
	}
	config, err := kube.Convert[appsapply.DaemonSetApplyConfiguration](daemonSet)
	if err != nil {
		return fmt.Errorf("convert the DaemonSet: %w", err)
	}
	config.Status = nil
	if err := kube.Known(ctx, func() error { return kube.Apply(ctx, c.client, kube.OwnerPlugin, config) }); err != nil {
		return fmt.Errorf("apply DaemonSet %s: %w", daemonSet.Name, err)
	}
	return nil
}

// stays is true when the object is right but for what the operator says of its pods: the image of
// the waiting container, which changes with every release, and the priority class, which a new
// ModulePolicy changes. Neither is worth a restart of the plugin: the next change brings it along.
func stays(module *v1beta1.Module, pods Pods, want, current *appsv1.DaemonSet) (bool, error) {
	if right, err := right(want, current); right || err != nil {
		return right, err
	}
	before := Pods{cmp.Or(waitImage(current), pods.AgentImage), current.Spec.Template.Spec.PriorityClassName}
	// A class that neither is nor was asked for is an edit of the DaemonSet.
	if before == pods || before.Priority != pods.Priority && before.Priority != nodeCritical {
		return false, nil
	}
	older, err := wish(module, before, []*appsv1.DaemonSet{current})
	if err != nil {
		return false, err
	}
	return right(older, current)
}

// right is true when the object has all that is asked for, and was last written for the same wish.
func right(want, got *appsv1.DaemonSet) (bool, error) {
	if want.Annotations[claims.DriverAnnotation] != got.Annotations[claims.DriverAnnotation] {
		return false, nil
	}
	wish, err := kube.Wish(want, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	if err != nil {
		return false, err
	}
	return kube.Settled(wish, got)
}

type foreignError struct{ what string }

func (e foreignError) Error() string {
	return e.what + " exists and does not belong to this Module: delete or rename it"
}

// mayTake refuses to take over an object that was not made for the Module. It asks the API server:
// the cache holds only objects with our labels.
func (c *Controller) mayTake(ctx context.Context, module *v1beta1.Module, kind, name string, object client.Object) error {
	err := c.live.Get(ctx, client.ObjectKey{Namespace: module.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get %T %s: %w", object, name, err)
	case !made(object, module.Name, module.UID):
		return foreignError{what: kind + " " + name}
	}
	return nil
}

func (c *Controller) prune(ctx context.Context, module *v1beta1.Module, now *have, account *corev1.ServiceAccount,
	daemonSet *appsv1.DaemonSet) error {
	err := kube.Prune(ctx, c.client, now.daemonSets, func(ds *appsv1.DaemonSet) bool {
		return daemonSet != nil && (ds.Name == daemonSet.Name || serves(ds, module))
	})
	if err != nil {
		return fmt.Errorf("prune DaemonSets: %w", err)
	}
	keep := func(sa *corev1.ServiceAccount) bool { return account != nil && sa.Name == account.Name }
	stay := now.serving
	if account != nil {
		stay = append(stay, account.Name)
	}
	if err := c.unbind(ctx, module, stay); err != nil {
		return err
	}
	if err := kube.Prune(ctx, c.client, now.accounts, keep); err != nil {
		return fmt.Errorf("prune ServiceAccounts: %w", err)
	}
	return nil
}

// removeAll deletes all that is the Module's, and tells what cannot go yet. DeviceClasses go first,
// so that nobody gets a device.
func (c *Controller) removeAll(ctx context.Context, module *v1beta1.Module, now *have) (reconcile.Result, *reasons.Problem, error) {
	if err := kube.Prune(ctx, c.client, now.classes, func(*resourcev1.DeviceClass) bool { return false }); err != nil {
		return reconcile.Result{}, nil, fmt.Errorf("prune DeviceClasses: %w", err)
	}
	kept, err := c.keepDriver(ctx, module, now)
	if err != nil {
		return reconcile.Result{}, nil, err
	}
	result, problem := reconcile.Result{}, (*reasons.Problem)(nil)
	if kept != "" {
		result.RequeueAfter = claimDelay
		problem = &reasons.Problem{Reason: v1beta1.ReasonInUse, Message: "pods hold devices of " + kept + ", which serves until they end"}
	}
	return result, problem, c.prune(ctx, module, now, nil, nil)
}

func find[T client.Object](objects []T, name string) T {
	var none T
	for _, object := range objects {
		if object.GetName() == name {
			return object
		}
	}
	return none
}

// refused reports what only a person can fix, and returns the error for another try.
func (c *Controller) refused(ctx context.Context, module *v1beta1.Module, what string, err error) (reconcile.Result, error) {
	if problem := problemOf(what, err); problem != nil {
		err = errors.Join(err, c.report(ctx, module, problem))
	}
	return reconcile.Result{}, err
}

// conflict is about DeviceClasses that are not ours; nil: all is well. They are not watched,
// but looked at again from time to time.
func conflict(taken []string) (reconcile.Result, *reasons.Problem) {
	if len(taken) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: conflictDelay}, &reasons.Problem{
		Reason: v1beta1.ReasonDeviceClassConflict, Message: fmt.Sprintf(
			"DeviceClasses %s exist and do not belong to this Module: choose other names in spec.dra.deviceClasses, or delete them",
			strings.Join(taken, ", ")),
	}
}

func (c *Controller) report(ctx context.Context, module *v1beta1.Module, problem *reasons.Problem) error {
	return problems.Report(ctx, c.client, module, v1beta1.ProblemPlugin, problems.Whole(problem))
}
