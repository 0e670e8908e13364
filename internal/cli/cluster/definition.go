// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/definition"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// complete gives Modules the condition that the operator cannot write: where somebody has replaced
// the definition of Modules, they have no conditions. Users who may not see definitions learn
// nothing.
func (c *Client) complete(ctx context.Context, modules ...*v1beta1.Module) {
	lacks, asked := "", false
	for _, m := range modules {
		if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady) != nil {
			continue
		}
		if !asked {
			lacks, asked = c.lacks(ctx), true
		}
		if lacks == "" {
			return
		}
		m.Status.ObservedGeneration = m.Generation
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonCRDIncompatible, ObservedGeneration: m.Generation,
			Message: definition.Problem(definition.Modules + ": " + lacks),
		})
	}
}

// lacks is what the cluster's definition of Modules lacks; empty: nothing, or it is not to be seen.
func (c *Client) lacks(ctx context.Context) string {
	crd := &unstructured.Unstructured{}
	raw, err := c.Core.RESTClient().Get().AbsPath(definitions + definition.Modules).DoRaw(ctx)
	if err != nil || crd.UnmarshalJSON(raw) != nil {
		return ""
	}
	return definition.Misfit(crd)
}
