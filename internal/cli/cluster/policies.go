// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// SeePolicies reads the ModulePolicies and, if there are any, the labels of a namespace, by which
// they choose. Without the rights, the view has no policies, and says so.
func (v *View) SeePolicies(ctx context.Context, c *Client, namespace string) error {
	client := of[v1alpha1.ModulePolicy, v1alpha1.ModulePolicyList](c, v1alpha1.GroupVersion, "modulepolicies", "")
	list, err := all(ctx, client.List, "", func(l *v1alpha1.ModulePolicyList) []v1alpha1.ModulePolicy { return l.Items })
	switch {
	case unknownKind(err):
		return nil
	case err != nil:
		err = fmt.Errorf("list ModulePolicies: %w", err)
	}
	const shows = "whether a ModulePolicy denies what a Module would load"
	seen, err := v.seen(err, "list on modulepolicies."+v1alpha1.GroupVersion.Group+" (cluster-wide)", shows, ViewerRole)
	if !seen || len(list) == 0 {
		return err
	}
	found, err := c.core.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = nil // it has no labels
	case err != nil:
		err = fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	if seen, err = v.seen(err, "get on namespaces (namespace "+namespace+")", shows, "view"); seen {
		v.Policies, v.NamespaceLabels = modulepolicy.Of(list), found.Labels
	}
	return err
}
