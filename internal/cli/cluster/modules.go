// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/definition"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// completion gives Modules the condition that the operator cannot write: a definition of Modules
// that is not Drover's leaves them without conditions. Users who may not see definitions learn
// nothing.
func (c *Client) completion(ctx context.Context) func(*v1beta1.Module) {
	lacks := sync.OnceValue(func() string { return c.lacks(ctx) })
	return func(m *v1beta1.Module) {
		if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady) != nil || lacks() == "" {
			return
		}
		m.Status.ObservedGeneration = m.Generation
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonCRDIncompatible, ObservedGeneration: m.Generation,
			Message: definition.Problem(definition.Modules + ": " + lacks()),
		})
	}
}

// lacks is what the cluster's definition of Modules lacks; empty: nothing, or it cannot be seen.
func (c *Client) lacks(ctx context.Context) string {
	crd := &unstructured.Unstructured{}
	raw, err := c.core.RESTClient().Get().AbsPath(definitions + definition.Modules).DoRaw(ctx)
	if err != nil || crd.UnmarshalJSON(raw) != nil {
		return ""
	}
	return definition.Misfit(crd)
}

// DryRun asks the API server whether it would take m in place of live, or as new if live is nil,
// and returns what it would store. Errors are the API server's own.
func (c *Client) DryRun(ctx context.Context, live, m *v1beta1.Module) (*v1beta1.Module, error) {
	modules, dry := c.modules(m.Namespace), []string{metav1.DryRunAll}
	if live == nil {
		stored, err := modules.Create(ctx, m, metav1.CreateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict})
		return stored, err //nolint:wrapcheck // the caller tells refusals apart
	}
	next := live.DeepCopy()
	next.Spec = m.Spec
	next.Labels, next.Annotations = labels.Merge(live.Labels, m.Labels), labels.Merge(live.Annotations, m.Annotations)
	stored, err := modules.Update(ctx, next, metav1.UpdateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict})
	return stored, err //nolint:wrapcheck // the caller tells refusals apart
}
