// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// The operator's own rights, besides what its other controllers ask for. Carriers are pods, so it
// may create pods anywhere; the admission policy drover-carriers lets it create no others.
//
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs,verbs=get;list;watch;create;patch;delete
// Nodes are patched, and pods evicted, for spec.rollout.drain only.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=drover-carriers;drover-agent-status,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceslices,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=devicetaintrules,verbs=list;create;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch

// act does all steps of a pass: first what goes, on all nodes, then the rest. In the other order,
// more carriers would stand than there are slots.
func (c *Controller) act(ctx context.Context, steps []nodeplan.Step) error {
	return errors.Join(
		kube.Each(ctx, c.options.Parallelism, steps, c.clear),
		kube.Each(ctx, c.options.Parallelism, steps, c.perform))
}

// clear deletes a node's carriers that have done their work, or cannot.
func (c *Controller) clear(ctx context.Context, s nodeplan.Step) error {
	for _, pod := range s.Discard {
		if err := kube.Delete(ctx, c.client, pod); err != nil {
			return err
		}
	}
	return nil
}

// perform does the rest of one node's step. It runs for many nodes at a time.
func (c *Controller) perform(ctx context.Context, s nodeplan.Step) error {
	order := s.Write
	if s.Create != nil {
		carrier, refusal, err := c.create(ctx, s.Key, s.Create)
		switch {
		case err != nil:
			return err
		case refusal != nil:
			s.Holds = append(s.Holds, nodeplan.Hold{By: nodeplan.Admission, Problem: refusal})
			return c.perform(ctx, s.Step())
		}
		order = s.Named(carrier)
	}
	if s.Failed != nil {
		c.ledger.fail(s.Key, nodeplan.Place{Node: s.Node.Name, Image: s.Delivery.Image}, *s.Failed, s.Delivery.Retry)
	}
	switch {
	case order != nil:
		return c.apply(ctx, s, order)
	case s.Remove:
		return c.remove(ctx, s)
	case s.Free:
		return c.free(ctx, s)
	}
	return nil
}

// create makes a carrier. A refusal is no error: it is remembered, told of and tried again.
func (c *Controller) create(
	ctx context.Context, key types.NamespacedName, request *delivery.Request,
) (carrier types.UID, refusal *reasons.Problem, err error) {
	pod := delivery.Carrier(request)
	err = c.client.Create(ctx, pod, kube.OwnerCarrier)
	switch {
	case err == nil:
		c.ledger.create(key, pod.UID)
		return pod.UID, nil, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		log.FromContext(ctx).V(2).Info("Carrier refused", "node", request.Node, "reason", err.Error())
		return "", &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: err.Error()}, nil
	}
	return "", nil, fmt.Errorf("create carrier pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// apply writes the Module's order. Every apply has the owner reference, so that it does not leave
// with the Module that happened to create the object, and the object's UID once there is one: a
// delete in between is a conflict then, not a new object that only one Module knows of.
func (c *Controller) apply(ctx context.Context, s nodeplan.Step, order *v1beta1.NodeModuleSpec) error {
	n := s.Node
	spec, err := kube.Convert[kmmac.NodeModuleSpecApplyConfiguration](order)
	if err != nil {
		return err
	}
	config := kmmac.NodeModulesConfig(n.Name).WithOwnerReferences(metaac.OwnerReference().
		WithAPIVersion("v1").WithKind("Node").WithName(n.Node.Name).WithUID(n.Node.UID)).
		WithLabels(nodeplan.Labels(order)).WithSpec(kmmac.NodeModulesConfigSpec().WithModules(spec))
	if n.Config != nil {
		config.WithUID(n.Config.UID)
	}
	if order.State == v1beta1.NodeModuleAbsent && nodeplan.Finalizable(n.Config) {
		config.WithFinalizers(nodeplan.OrdersFinalizer)
	}
	if s.Delivery.Mountless {
		config.WithAnnotations(map[string]string{v1beta1.NoImageVolumesAnnotation: nodeplan.Software(n.Node)})
	}
	return kube.Apply(ctx, c.client, kube.ModuleOwner(order.Namespace, order.Name), config)
}
