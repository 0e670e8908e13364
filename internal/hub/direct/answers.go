// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
)

// unread is said of a cluster that answers, and whose Modules are not known.
const unread = "its Modules cannot be read: check that its operator is installed, and that the kubeconfig's user may list Modules"

// answers is why a cluster does not answer; nil: it does, and the cache is filled.
func (c *connection) answers(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.rest.Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask whether it is ready: %w", err)
	}
	if !c.cache.WaitForCacheSync(ctx) {
		return errors.New(unread)
	}
	if err := c.current(ctx); err != nil {
		return err
	}
	c.synced.Store(true)
	return nil
}

// current waits until the cache has what the cluster has now. A watch that is refused by now leaves
// the cache as it was, and one that has broken may rest for a minute after the cluster is back.
func (c *connection) current(ctx context.Context) error {
	said := types.NamespacedName{Namespace: c.namespace, Name: Platforms}
	if err := c.client.Get(ctx, said, &corev1.ConfigMap{}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("what its nodes run cannot be read: %w", err)
	}
	now := &metav1.PartialObjectMetadataList{}
	now.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("ModuleList"))
	if err := c.client.List(ctx, now, client.HasLabels{hub.NameLabel}); err != nil {
		return fmt.Errorf("%s: %w", unread, err)
	}
	if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var have v1beta1.ModuleList
		if err := c.cache.List(ctx, &have, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("list Modules: %w", err)
		}
		return caughtUp(have.Items, now), nil
	}); err != nil {
		return fmt.Errorf("the watch of its Modules is late: %w", err)
	}
	return nil
}

// caughtUp reports whether a cache has at least what a list says.
func caughtUp(have []v1beta1.Module, now *metav1.PartialObjectMetadataList) bool {
	// Versions that cannot be compared do not keep a cluster from being reached.
	older := func(a, b string) bool {
		order, err := resourceversion.CompareResourceVersion(a, b)
		return err == nil && order < 0
	}
	listed, cached := map[types.UID]bool{}, map[types.UID]string{}
	for i := range now.Items {
		listed[now.Items[i].UID] = true
	}
	for i := range have {
		cached[have[i].UID] = have[i].ResourceVersion
		if !listed[have[i].UID] && older(have[i].ResourceVersion, now.ResourceVersion) {
			return false // it has gone
		}
	}
	return !slices.ContainsFunc(now.Items, func(m metav1.PartialObjectMetadata) bool {
		version, ok := cached[m.UID]
		return !ok || older(version, m.ResourceVersion)
	})
}
