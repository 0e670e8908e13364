// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/reasons"
)

// act does all steps of a pass: first what goes, on all nodes, then the rest. A slot that a carrier gives back is taken by
// another in the same pass, so that the other order would have more of them stand than there are slots.
func (c *Controller) act(ctx context.Context, steps []step) error {
	return errors.Join(
		kube.Each(ctx, c.options.Parallelism, steps, c.clear),
		kube.Each(ctx, c.options.Parallelism, steps, c.perform))
}

// clear deletes a node's carriers that have done their work, or cannot.
func (c *Controller) clear(ctx context.Context, s step) error {
	for _, pod := range s.discard {
		if err := kube.Delete(ctx, c.client, pod); err != nil {
			return err
		}
	}
	return nil
}

// perform does the rest of one node's step. Nodes are independent of each other: it runs for many at a time.
func (c *Controller) perform(ctx context.Context, s step) error {
	if s.failed != nil {
		c.ledger.fail(s.key, s.view.name, s.image, *s.failed, s.retry)
	}
	if s.request != nil {
		carrier, err := c.create(ctx, s)
		if carrier == nil || err != nil {
			return err
		}
		s.carried().CarrierUID = carrier.UID
	}
	switch {
	case s.write != nil:
		return c.apply(ctx, s)
	case s.remove:
		return c.remove(ctx, s)
	case s.free:
		return c.free(ctx, s)
	}
	return nil
}

// create makes a carrier. A refusal is not an error: it is remembered, reported and tried again later.
func (c *Controller) create(ctx context.Context, s step) (*corev1.Pod, error) {
	pod := delivery.Carrier(s.request)
	err := c.client.Create(ctx, pod, kube.OwnerCarrier)
	switch {
	case err == nil:
		c.ledger.create(s.key, pod.UID)
		return pod, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		c.ledger.fail(s.key, s.view.name, s.image, reasons.Problem{
			Reason: v1beta1.ReasonDeliveryRefused, Message: err.Error(),
		}, s.retry)
		log.FromContext(ctx).V(2).Info("Carrier refused", "node", s.view.name, "reason", err.Error())
		return nil, nil
	}
	return nil, fmt.Errorf("create carrier pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// apply writes the Module's entry and nothing else. Every apply carries the owner reference, so that it does not leave
// with the Module that happened to create the object, and the object's UID once there is one: a delete in between is a
// conflict then, not a new object that only one Module knows of.
func (c *Controller) apply(ctx context.Context, s step) error {
	v, entry := s.view, s.write
	spec, err := kube.Convert[kmmac.NodeModuleSpecApplyConfiguration](entry)
	if err != nil {
		return err
	}
	config := c.applied(v).WithLabels(labelsOf(entry)).WithSpec(kmmac.NodeModulesConfigSpec().WithModules(spec))
	if entry.State == v1beta1.NodeModuleAbsent && holdable(v.config) {
		config.WithFinalizers(OrdersFinalizer)
	}
	if s.mountless {
		config.WithAnnotations(map[string]string{v1beta1.NoImageVolumesAnnotation: software(v.node)})
	}
	return kube.Apply(ctx, c.client, kube.ModuleOwner(entry.Namespace, entry.Name), config)
}

// labelsOf are the labels by which clients find the NodeModulesConfigs of a Module. They come and change with its entry: no
// write is made for them alone, but to an object that an operator wrote which did not know them.
func labelsOf(entry *v1beta1.NodeModuleSpec) map[string]string {
	labels := map[string]string{v1beta1.InUseLabel(entry.Namespace, entry.Name): ""}
	if entry.State != v1beta1.NodeModuleAbsent {
		labels[v1beta1.ConfiguredLabel(entry.Namespace, entry.Name)] = ""
	}
	return labels
}

// labelled reports whether the object has the labels of an entry.
func labelled(config *v1beta1.NodeModulesConfig, entry *v1beta1.NodeModuleSpec) bool {
	for label := range labelsOf(entry) {
		if _, ok := config.Labels[label]; !ok {
			return false
		}
	}
	return true
}

func (c *Controller) applied(v *view) *kmmac.NodeModulesConfigApplyConfiguration {
	config := kmmac.NodeModulesConfig(v.name).WithOwnerReferences(metaac.OwnerReference().
		WithAPIVersion("v1").WithKind("Node").WithName(v.node.Name).WithUID(v.node.UID))
	if v.config != nil {
		config.WithUID(v.config.UID)
	}
	return config
}
