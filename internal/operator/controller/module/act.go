// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
// more carriers would stand than there are slots. What is refused is noted by node.
func (c *Controller) act(ctx context.Context, steps []nodeplan.Step, refused *refusals) error {
	noting := func(do func(context.Context, nodeplan.Step) error) func(context.Context, nodeplan.Step) error {
		return func(ctx context.Context, s nodeplan.Step) error {
			err := do(ctx, s)
			refused.note(s.Node.Name, err)
			return err
		}
	}
	return errors.Join(
		kube.Each(ctx, c.options.Parallelism, steps, noting(c.clear)),
		kube.Each(ctx, c.options.Parallelism, steps, noting(c.perform)))
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
		c.ledger.fail(s.Key, nodeplan.Place{Node: s.Node.Name, Image: s.Delivery.Image}, s.Ended(), *s.Failed, s.Delivery.Retry)
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

// create makes a carrier. A refusal is no error: it is remembered, reported and tried again.
func (c *Controller) create(
	ctx context.Context, key types.NamespacedName, request *delivery.Request,
) (carrier types.UID, refusal *reasons.Problem, err error) {
	pod := delivery.Carrier(request)
	err = kube.Known(ctx, func() error { return c.client.Create(ctx, pod, kube.OwnerCarrier) })
	switch {
	case err == nil:
		c.ledger.create(key, request.Node, pod.UID)
		return pod.UID, nil, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err),
		kube.FailedWebhook(err) != "":
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
	sent := c.options.Clock.Now()
	err = kube.Apply(ctx, c.client, kube.ModuleOwner(order.Namespace, order.Name), config)
	// A refusal that comes soon says nothing of how much there is to do.
	if took := c.options.Clock.Now().Sub(sent); err == nil || took >= late {
		c.ledger.answered(took)
	}
	return err
}

// operation is one line of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// remove takes the order out, and the finalizer with the last order to unload. An object without
// anything else goes too, as it was read: an order that came since is a conflict.
func (c *Controller) remove(ctx context.Context, s nodeplan.Step) error {
	config, err := c.current(ctx, s)
	if config == nil || err != nil {
		return err
	}
	var patch []operation
	ours := func(o v1beta1.NodeModuleSpec) bool { return o.Namespace == s.Key.Namespace && o.Name == s.Key.Name }
	if i := slices.IndexFunc(config.Spec.Modules, ours); i >= 0 {
		patch = append(patch, takeOrder(config, i)...)
		config.Spec.Modules = slices.Delete(config.Spec.Modules, i, i+1)
	}
	patch = append(patch, takeLabels(config, s.Key)...)
	if !nodeplan.Unloads(config) {
		patch = append(patch, takeFinalizer(config)...)
	}
	last := nodeplan.Bare(config)
	if last && !nodeplan.Finalized(config) {
		return kube.DeleteUnchanged(ctx, c.client, config)
	}
	patch = append(patch, takeOwner(config, s.Key)...)
	if err := c.strip(ctx, s, config, patch); err != nil || !last || config.DeletionTimestamp != nil {
		return err
	}
	return kube.DeleteUnchanged(ctx, c.client, config)
}

// current is the node's NodeModulesConfig as the API server has it; nil: it is gone. The cache's is
// often older where several Modules leave at the same time, and a patch of that would only be
// refused. What the pass decided by must still be so; else it is a conflict and nothing is written.
func (c *Controller) current(ctx context.Context, s nodeplan.Step) (*v1beta1.NodeModulesConfig, error) {
	seen, now := s.Node.Config, &v1beta1.NodeModulesConfig{}
	switch err := c.live.Get(ctx, client.ObjectKeyFromObject(seen), now); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get NodeModulesConfig %s: %w", seen.Name, err)
	}
	var n nodeplan.Node
	n.Read(s.Key, now)
	if now.UID == seen.UID && (now.ResourceVersion == seen.ResourceVersion || s.Node.Answered() && n.Answered()) {
		return now, nil
	}
	return nil, conflict(seen.Name, errors.New("it has changed since the pass read it"))
}

// free takes the finalizer off.
func (c *Controller) free(ctx context.Context, s nodeplan.Step) error {
	config := s.Node.Config.DeepCopy()
	return c.strip(ctx, s, config, takeFinalizer(config))
}

// strip takes something out of the object as it was read, whatever its owner, and leaves in config
// what the API server answered. An apply without the order would keep what others own of it, after
// a restore from a backup for example: an order without a state, which is one to load.
func (c *Controller) strip(ctx context.Context, s nodeplan.Step, config *v1beta1.NodeModulesConfig, patch []operation) error {
	patch = slices.Insert(patch, 0, operation{Op: "test", Path: "/metadata/resourceVersion", Value: config.ResourceVersion})
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of NodeModulesConfig %s: %w", config.Name, err)
	}
	err = c.client.Patch(ctx, config, client.RawPatch(types.JSONPatchType, text), kube.ModuleOwner(s.Key.Namespace, s.Key.Name))
	if unfit(err) {
		err = conflict(config.Name, err)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take orders out of NodeModulesConfig %s: %w", config.Name, err)
	}
	return nil
}

func takeOrder(config *v1beta1.NodeModulesConfig, i int) []operation {
	o, at := &config.Spec.Modules[i], fmt.Sprintf("/spec/modules/%d", i)
	return []operation{
		{Op: "test", Path: at + "/namespace", Value: o.Namespace},
		{Op: "test", Path: at + "/name", Value: o.Name},
		{Op: "remove", Path: at},
	}
}

// takeLabels takes off the labels of the Module.
func takeLabels(config *v1beta1.NodeModulesConfig, key types.NamespacedName) []operation {
	var patch []operation
	for _, label := range []string{v1beta1.ConfiguredLabel(key.Namespace, key.Name), v1beta1.InUseLabel(key.Namespace, key.Name)} {
		if _, ok := config.Labels[label]; ok {
			patch = append(patch, operation{Op: "remove", Path: "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")})
		}
	}
	return patch
}

func takeFinalizer(config *v1beta1.NodeModulesConfig) []operation {
	i := slices.Index(config.Finalizers, nodeplan.OrdersFinalizer)
	if i < 0 {
		return nil
	}
	at := fmt.Sprintf("/metadata/finalizers/%d", i)
	return []operation{{Op: "test", Path: at, Value: nodeplan.OrdersFinalizer}, {Op: "remove", Path: at}}
}

// takeOwner takes the Module's field owner out of metadata.managedFields, which the cache lacks: it
// owns the owner reference, too, as each Module does, and would be listed for ever.
func takeOwner(config *v1beta1.NodeModulesConfig, key types.NamespacedName) []operation {
	var patch []operation
	owner := string(kube.ModuleOwner(key.Namespace, key.Name))
	for i := len(config.ManagedFields) - 1; i >= 0; i-- {
		if config.ManagedFields[i].Manager == owner {
			patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("/metadata/managedFields/%d", i)})
		}
	}
	return patch
}

// conflict says that a NodeModulesConfig is not as it was read.
func conflict(name string, err error) error {
	resource := v1beta1.GroupVersion.WithResource("nodemodulesconfigs").GroupResource()
	return fmt.Errorf("change NodeModulesConfig %s: %w", name, apierrors.NewConflict(resource, name, err))
}

// unfit reports whether a test in a JSON patch failed: the object is not as it was read. The API
// server answers that as it does an invalid object, but names no field.
func unfit(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
