// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
)

const managedResource = "managedclustermodules"

// Managed reads all ManagedClusterModules; none without a hub, or without the right.
func (c *Client) Managed(ctx context.Context) ([]hubv1beta1.ManagedClusterModule, error) {
	list, err := pages(func(o metav1.ListOptions) ([]hubv1beta1.ManagedClusterModule, string, error) {
		var l hubv1beta1.ManagedClusterModuleList
		err := c.Hub.Get().Resource(managedResource).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
		return l.Items, l.Continue, err //nolint:wrapcheck // wrapped below
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ManagedClusterModules: %w", err)
	}
	return list, nil
}

// ManagedModule reads one; nil: there is none, or the user may not see it.
func (c *Client) ManagedModule(ctx context.Context, name string) (*hubv1beta1.ManagedClusterModule, error) {
	m := &hubv1beta1.ManagedClusterModule{}
	err := c.Hub.Get().Resource(managedResource).Name(name).Do(ctx).Into(m)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // as said
	}
	if err != nil {
		return nil, fmt.Errorf("get ManagedClusterModule %s: %w", name, err)
	}
	return m, nil
}
