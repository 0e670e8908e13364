// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list

// refusals are writes for nodes that the API server refuses, by node.
type refusals struct {
	mu sync.Mutex
	by map[string]reasons.Problem
}

// note remembers what came of a write for a node, if it was refused. Of a webhook that does not
// answer, the Module as a whole tells.
func (r *refusals) note(node string, err error) {
	if !kube.Refused(err) || kube.FailedWebhook(err) != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]reasons.Problem{}
	}
	r.by[node] = reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: "the API server refuses: " + words.Line(err.Error())}
}

// refusal is what keeps a Module from being written, if that is admission; nil: it is not. What it
// says is the same at each try.
func (c *Controller) refusal(ctx context.Context, err error) *reasons.Problem {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: fmt.Sprintf("the API server refuses to change this Module: %v", err)}
	}
	return c.webhook(ctx, err)
}

// webhook is the admission webhook without a server, such as one that KMM has left, that kept
// something from being written; nil: there is none.
func (c *Controller) webhook(ctx context.Context, err error) *reasons.Problem {
	name := kube.FailedWebhook(err)
	if name == "" {
		return nil
	}
	kind, configuration, err := c.configured(ctx, name)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot find out whose webhook it is", "webhook", name)
	}
	if configuration == "" {
		return &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: fmt.Sprintf(
			"the admission webhook %s does not answer, so the API server refuses what this Module needs: start its server, or delete its "+
				"configuration if it belongs to an operator that is gone", name)}
	}
	return &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: fmt.Sprintf(
		"the webhook %s of %s %s does not answer, so the API server refuses what this Module needs: start its server, or, if it belongs to an "+
			"operator that is gone, run kubectl delete %[2]s %[3]s", name, kind, configuration)}
}

// configured finds the configuration that has a webhook.
func (c *Controller) configured(ctx context.Context, webhook string) (kind, name string, err error) {
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := c.live.List(ctx, &validating); err != nil {
		return "", "", fmt.Errorf("list ValidatingWebhookConfigurations: %w", err)
	}
	for i := range validating.Items {
		for j := range validating.Items[i].Webhooks {
			if validating.Items[i].Webhooks[j].Name == webhook {
				return "validatingwebhookconfiguration", validating.Items[i].Name, nil
			}
		}
	}
	var mutating admissionv1.MutatingWebhookConfigurationList
	if err := c.live.List(ctx, &mutating); err != nil {
		return "", "", fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	for i := range mutating.Items {
		for j := range mutating.Items[i].Webhooks {
			if mutating.Items[i].Webhooks[j].Name == webhook {
				return "mutatingwebhookconfiguration", mutating.Items[i].Name, nil
			}
		}
	}
	return "", "", nil
}

// refused tells of a refusal of a Module's finalizer, and returns the error for another try.
func (c *Controller) refused(ctx context.Context, m *v1beta1.Module, err error) error {
	p := c.refusal(ctx, err)
	if p == nil {
		return err
	}
	return errors.Join(err, problems.Report(ctx, c.client, m, v1beta1.ProblemDeliveries, problems.Whole(p)))
}
