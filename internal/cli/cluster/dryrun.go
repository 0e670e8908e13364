// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// In is the same connection, for another namespace.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.Namespace = namespace
	return &other
}

// DryRun asks the API server whether it would take m in place of live, or as new if live is nil,
// and returns what it would store. Errors are the API server's own.
func (c *Client) DryRun(ctx context.Context, live, m *v1beta1.Module) (*v1beta1.Module, error) {
	stored := &v1beta1.Module{}
	if live == nil {
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		err := c.Modules.Post().Namespace(m.Namespace).Resource("modules").VersionedParams(&options,
			metav1.ParameterCodec).Body(m).Do(ctx).Into(stored)
		return stored, err //nolint:wrapcheck // the caller tells refusals apart
	}
	next := live.DeepCopy()
	next.Spec = m.Spec
	next.Labels, next.Annotations = labels.Merge(live.Labels, m.Labels), labels.Merge(live.Annotations, m.Annotations)
	options := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	err := c.Modules.Put().Namespace(m.Namespace).Resource("modules").Name(m.Name).VersionedParams(&options,
		metav1.ParameterCodec).Body(next).Do(ctx).Into(stored)
	return stored, err //nolint:wrapcheck // the caller tells refusals apart
}
