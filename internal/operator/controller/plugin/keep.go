// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch

// driverAnnotation on a DRA driver's DaemonSet names the driver, in case the Module no longer does.
const driverAnnotation = "drover.dev/dra-driver"

// keepDriver takes out of have the DRA drivers that cannot go yet, with their ServiceAccounts, and
// reports whether it waits for any. A pod that has a device cannot end without its driver.
//
// The DaemonSet of a deleted Module with a kernel module goes after the Module: its pods leave node
// by node with the ready label.
func (c *Controller) keepDriver(ctx context.Context, module *v1beta1.Module, now *have) (bool, error) {
	leaves := module.DeletionTimestamp != nil && module.Spec.ModuleLoader != nil
	waits := false
	for _, daemonSet := range slices.Clone(now.daemonSets) {
		driver := daemonSet.Annotations[driverAnnotation]
		if driver == "" || module.Spec.DRA != nil && module.DeletionTimestamp == nil {
			continue
		}
		if !leaves {
			held, err := c.held(ctx, driver)
			if err != nil {
				return false, err
			}
			if !held {
				continue
			}
			waits = true
		}
		now.daemonSets = slices.DeleteFunc(now.daemonSets, func(d *appsv1.DaemonSet) bool { return d == daemonSet })
		now.accounts = slices.DeleteFunc(now.accounts, func(a *corev1.ServiceAccount) bool { return a.Name == daemonSet.Name })
	}
	return waits, nil
}

// held reports whether pods have devices of a driver. The API server is asked as well: the cache
// may lack the newest claim.
func (c *Controller) held(ctx context.Context, driver string) (bool, error) {
	if !c.dra {
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
