// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// SeePolicies reads the ModulePolicies and, if there are any, the labels of a namespace, by which
// they choose. Without the rights, the view has no policies, and says so.
func (v *View) SeePolicies(ctx context.Context, c *Client, namespace string) error {
	list, err := c.policies(ctx)
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

func (c *Client) policies(ctx context.Context) ([]v1alpha1.ModulePolicy, error) {
	client := of[v1alpha1.ModulePolicy, v1alpha1.ModulePolicyList](c, v1alpha1.GroupVersion, "modulepolicies", "")
	return all(ctx, client.List, "", func(l *v1alpha1.ModulePolicyList) []v1alpha1.ModulePolicy { return l.Items })
}

// Policies are the ModulePolicies of the cluster, and the labels of all namespaces, by which they
// choose.
func (c *Client) Policies(ctx context.Context) (modulepolicy.Set, map[string]map[string]string, error) {
	list, err := c.policies(ctx)
	if err != nil {
		return modulepolicy.Set{}, nil, fmt.Errorf("list ModulePolicies: %w", err)
	}
	namespaces, err := all(ctx, c.core.Namespaces().List, "", func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	if err != nil {
		return modulepolicy.Set{}, nil, fmt.Errorf("list namespaces: %w", err)
	}
	labels := map[string]map[string]string{}
	for i := range namespaces {
		labels[namespaces[i].Name] = namespaces[i].Labels
	}
	return modulepolicy.Of(list), labels, nil
}
