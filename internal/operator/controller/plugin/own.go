// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Objects have no owner reference to their Module. In a foreground deletion the garbage collector
// would delete a driver, or its ServiceAccount, under claims that only it can unprepare; an
// orphaning one would leave it behind. An annotation names the Module instead, and this controller
// deletes them, also those of a Module that is gone ([Controller.orphans]).

// made reports whether an object was made for a Module of that name, by the annotation, whatever
// UID it has, or by the owner reference of an earlier release or of KMM.
func made(object client.Object, name string, uid types.UID) bool {
	_, annotated := object.GetAnnotations()[kube.ModuleAnnotation]
	return annotated && object.GetLabels()[v1beta1.ModuleNameLabel] == name || uid != "" && kube.MadeFor(object, uid)
}

func (c *Controller) list(ctx context.Context, key types.NamespacedName, uid types.UID) (*have, error) {
	which := []client.ListOption{
		client.InNamespace(key.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: key.Name}, client.HasLabels{v1beta1.RoleLabel},
	}
	var daemonSets appsv1.DaemonSetList
	if err := c.client.List(ctx, &daemonSets, which...); err != nil {
		return nil, fmt.Errorf("list DaemonSets: %w", err)
	}
	var accounts corev1.ServiceAccountList
	if err := c.client.List(ctx, &accounts, which...); err != nil {
		return nil, fmt.Errorf("list ServiceAccounts: %w", err)
	}
	return &have{daemonSets: only(daemonSets.Items, key.Name, uid), accounts: only(accounts.Items, key.Name, uid)}, nil
}

// only are the objects that were made for a Module.
func only[T any, P interface {
	*T
	client.Object
}](all []T, name string, uid types.UID) []P {
	var kept []P
	for i := range all {
		if object := P(&all[i]); made(object, name, uid) {
			kept = append(kept, object)
		}
	}
	return kept
}

// observe finds what was made for this Module, and adopts what an earlier release made.
func (c *Controller) observe(ctx context.Context, module *v1beta1.Module) (*have, error) {
	now, err := c.list(ctx, client.ObjectKeyFromObject(module), module.UID)
	if err != nil {
		return nil, err
	}
	for _, daemonSet := range now.daemonSets {
		if err := c.adopt(ctx, module, daemonSet); err != nil {
			return nil, err
		}
	}
	for _, account := range now.accounts {
		if err := c.adopt(ctx, module, account); err != nil {
			return nil, err
		}
	}
	now.classes, err = c.classes(ctx, module)
	return now, err
}

// adopt replaces an owner reference, or an earlier Module's annotation, by our annotation.
func (c *Controller) adopt(ctx context.Context, module *v1beta1.Module, object client.Object, options ...client.PatchOption) error {
	isModule := func(r metav1.OwnerReference) bool {
		group, err := schema.ParseGroupVersion(r.APIVersion)
		return err == nil && group.Group == v1beta1.GroupVersion.Group && r.Kind == "Module"
	}
	uid := string(module.UID)
	if object.GetAnnotations()[kube.ModuleAnnotation] == uid && !slices.ContainsFunc(object.GetOwnerReferences(), isModule) {
		return nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T: not an object", object)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[kube.ModuleAnnotation] = uid
	object.SetAnnotations(annotations)
	object.SetOwnerReferences(slices.DeleteFunc(object.GetOwnerReferences(), isModule))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, object, patch, append(options, kube.OwnerPlugin)...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("adopt %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (c *Controller) orphans(ctx context.Context, key types.NamespacedName) error {
	now, err := c.list(ctx, key, "")
	if err != nil {
		return err
	}
	gone := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if now.classes, err = c.classes(ctx, gone); err != nil {
		return err
	}
	// Bindings are not in the cache: where there can be any, they are asked for.
	if len(now.daemonSets)+len(now.accounts)+len(now.classes) == 0 && c.options.Role == "" {
		return nil
	}
	// The cache may lack it.
	switch err := c.live.Get(ctx, key, &v1beta1.Module{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get Module: %w", err)
	}
	if err := kube.Prune(ctx, c.client, now.classes, func(*resourcev1.DeviceClass) bool { return false }); err != nil {
		return fmt.Errorf("prune DeviceClasses: %w", err)
	}
	return c.prune(ctx, gone, now, nil, nil)
}

// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch

// keepDriver takes out of have the DRA drivers that cannot go yet, with their ServiceAccounts, and
// names one for whose claims it waits; empty: for none. A pod that has a device cannot end without
// its driver.
//
// The DaemonSet of a deleted Module with a kernel module goes after the Module: its pods leave node
// by node with the ready label.
func (c *Controller) keepDriver(ctx context.Context, module *v1beta1.Module, now *have) (string, error) {
	leaves := module.DeletionTimestamp != nil && module.Spec.ModuleLoader != nil
	waits := ""
	for _, daemonSet := range slices.Clone(now.daemonSets) {
		driver := daemonSet.Annotations[claims.DriverAnnotation]
		if driver == "" || module.Spec.DRA != nil && module.DeletionTimestamp == nil {
			continue
		}
		if !leaves {
			held, err := c.held(ctx, driver)
			if err != nil {
				return "", err
			}
			if !held {
				continue
			}
			waits = driver
		}
		now.daemonSets = slices.DeleteFunc(now.daemonSets, func(d *appsv1.DaemonSet) bool { return d == daemonSet })
		account := daemonSet.Spec.Template.Spec.ServiceAccountName
		now.serving = append(now.serving, account)
		now.accounts = slices.DeleteFunc(now.accounts, func(a *corev1.ServiceAccount) bool { return a.Name == account })
	}
	return waits, nil
}

// outlived is why the driver that serves cannot make way for one of another name: pods have devices
// of it, and could not end without it.
func (c *Controller) outlived(ctx context.Context, want, current *appsv1.DaemonSet) (*reasons.Problem, error) {
	if current == nil {
		return nil, nil
	}
	driver := current.Annotations[claims.DriverAnnotation]
	if driver == "" || driver == want.Annotations[claims.DriverAnnotation] {
		return nil, nil
	}
	held, err := c.held(ctx, driver)
	if err != nil || !held {
		return nil, err
	}
	return &reasons.Problem{Reason: v1beta1.ReasonInUse, Message: fmt.Sprintf("pods hold devices of %s, which serves until they end; then %s "+
		"does", driver, want.Annotations[claims.DriverAnnotation])}, nil
}

// held reports whether pods have devices of a driver. The API server is asked as well: the cache
// may lack the newest claim.
func (c *Controller) held(ctx context.Context, driver string) (bool, error) {
	if !c.options.DRA {
		return false, nil
	}
	for _, reader := range []client.Reader{c.client, c.live} {
		var list resourcev1.ResourceClaimList
		if err := reader.List(ctx, &list); err != nil {
			return false, fmt.Errorf("list ResourceClaims: %w", err)
		}
		for i := range list.Items {
			if claims.Holds(&list.Items[i], driver) {
				return true, nil
			}
		}
	}
	return false, nil
}
