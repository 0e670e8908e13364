// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/strikes"
)

// crdNames are the definitions whose deletion must not unload anything, that of Modules first.
var crdNames = []string{definition.Modules, "nodemodulesconfigs." + v1beta1.GroupVersion.Group}

// snapshot is what one pass sees.
type snapshot struct {
	nodeplan.Pass
	// nodes are the cluster's, and those that only a NodeModulesConfig or carrier names, in order.
	nodes []nodeplan.Node
	// crdsLeaving is true while one of our CRDs is being deleted.
	crdsLeaving bool
	// images are those that are made in the cluster for the Module.
	images []v1alpha1.ModuleImage
	// modules are those with which the Module shares a budget.
	modules []types.NamespacedName
	// made counts what goes before the Module's finalizer does.
	made int
}

// leaving reports whether the Module is being deleted, or gone.
func (s *snapshot) leaving() bool { return s.Module == nil || s.Module.DeletionTimestamp != nil }

// observe is every read of a pass.
func (c *Controller) observe(ctx context.Context, key types.NamespacedName) (*snapshot, error) {
	snap := &snapshot{Pass: nodeplan.Pass{Key: key, Taints: c.options.UnloadTaints}}
	m := &v1beta1.Module{}
	switch err := c.client.Get(ctx, key, m); {
	case err == nil:
		snap.Module = m
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Module: %w", err)
	}
	var err error
	if snap.crdsLeaving, snap.Defined, err = definitions(ctx, c.client); err != nil {
		return nil, err
	}
	if snap.Unsealed, err = c.unsealed(ctx); err != nil {
		return nil, err
	}
	if snap.Devices, err = c.devices(ctx, snap.Module); err != nil {
		return nil, err
	}
	if snap.images, err = c.images(ctx, snap.Module); err != nil {
		return nil, err
	}
	if err = c.policies(ctx, snap); err != nil {
		return nil, err
	}
	if snap.made, err = c.made(ctx, snap.Module); err != nil {
		return nil, err
	}
	if snap.modules, err = budget.Sharing(ctx, c.client, c.options.Budget); err != nil {
		return nil, err
	}
	return snap, c.fleet(ctx, snap)
}

// images reads the images that are made in the cluster for a Module.
func (c *Controller) images(ctx context.Context, m *v1beta1.Module) ([]v1alpha1.ModuleImage, error) {
	if !c.options.Images || m == nil || m.Spec.ModuleLoader == nil {
		return nil, nil
	}
	var images v1alpha1.ModuleImageList
	err := c.client.List(ctx, &images, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name})
	if err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	return images.Items, nil
}

// fleet reads what is known of nodes.
func (c *Controller) fleet(ctx context.Context, snap *snapshot) error {
	key := snap.Key
	// Lists are read only: copies of every node are what a pass would mostly cost.
	// Another controller writes labels of nodes through this client; nothing here depends on those.
	nodes, err := kube.All[corev1.Node](ctx, c.client, &corev1.NodeList{}, kube.AsIs)
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	configs, err := kube.All[v1beta1.NodeModulesConfig](ctx, c.client, &v1beta1.NodeModulesConfigList{}, kube.OwnWrites)
	if err != nil {
		return fmt.Errorf("list NodeModulesConfigs: %w", err)
	}
	var pods corev1.PodList
	carriers := client.HasLabels{v1beta1.CarrierLabel}
	if err := c.client.List(ctx, &pods, client.InNamespace(key.Namespace), carriers, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list carrier pods: %w", err)
	}
	snap.nodes = join(key, nodes, configs, pods.Items)
	var fleet strikes.Fleet
	for i := range snap.nodes {
		if n := &snap.nodes[i]; n.Node != nil && n.Config != nil {
			fleet.Add(n.Config)
		}
	}
	if snap.Module != nil {
		snap.Verdict = fleet.Judge(key, placement.RetryAsked(snap.Module))
	}
	return nil
}

// join brings together by node name what concerns the Module.
func join(key types.NamespacedName, nodes []*corev1.Node, configs []*v1beta1.NodeModulesConfig, pods []corev1.Pod) []nodeplan.Node {
	byName := make(map[string]*nodeplan.Node, len(nodes))
	at := func(name string) *nodeplan.Node {
		if byName[name] == nil {
			byName[name] = &nodeplan.Node{Name: name}
		}
		return byName[name]
	}
	for _, node := range nodes {
		at(node.Name).Node = node
	}
	for _, config := range configs {
		at(config.Name).Read(key, config)
	}
	for i := range pods {
		if delivery.IsCarrier(&pods[i]) && carrierOf(&pods[i]) == key {
			n := at(pods[i].Spec.NodeName)
			n.Carriers = append(n.Carriers, &pods[i])
		}
	}
	all := make([]nodeplan.Node, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, *byName[name])
	}
	return all
}

// carrierOf is the Module that a carrier delivers for, in its namespace whatever the pod says.
func carrierOf(pod client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetAnnotations()[v1beta1.ModuleNameAnnotation]}
}

// departed asks the API server itself whether the Module of a pass that unloads everywhere is
// leaving, or gone. The cache may lack a Module that was made a moment ago, and when the CRDs are
// deleted, and the Modules with them, it may show the second before the first.
func (c *Controller) departed(ctx context.Context, snap *snapshot) (bool, error) {
	if leaving, _, err := definitions(ctx, c.live); err != nil || leaving {
		return false, err
	}
	m := &v1beta1.Module{}
	switch err := c.live.Get(ctx, snap.Key, m); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get Module: %w", err)
	}
	return m.DeletionTimestamp != nil, nil
}

// definitions reports whether one of our CRDs leaves or is gone, and the age of that of Modules.
func definitions(ctx context.Context, reader client.Reader) (leaving bool, since metav1.Time, err error) {
	for i, name := range crdNames {
		crd := anyDefinition()
		switch err := reader.Get(ctx, client.ObjectKey{Name: name}, crd); {
		case apierrors.IsNotFound(err):
			// Gone altogether. If it comes back, so do new objects, which are read then.
			return true, since, nil
		case err != nil:
			return false, since, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
		case crd.DeletionTimestamp != nil:
			return true, since, nil
		}
		if i == 0 {
			since = crd.CreationTimestamp
		}
	}
	return false, since, nil
}

// anyDefinition is an empty CustomResourceDefinition of which only the metadata is read.
func anyDefinition() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(definition.Kind)
	return crd
}

const (
	// SealPolicy is the name of the ValidatingAdmissionPolicy, and of its binding, that seals
	// carrier pods. Without it, anybody who may change pods could put code into a kernel.
	SealPolicy = "drover-carriers"
	// statusPolicy keeps each agent to its own node's status, so that none reports for others.
	statusPolicy = "drover-agent-status"
	// statusPolicyRest is how long the second counts as seen: the cache has but the first.
	statusPolicyRest = time.Minute
)

// unsealed says which policy, or binding, is missing or does not deny, or nil.
func (c *Controller) unsealed(ctx context.Context) (*reasons.Problem, error) {
	if problem, err := lacks(ctx, c.client, SealPolicy); problem != nil || err != nil {
		return problem, err
	}
	if seen := c.reports.Load(); seen != nil && c.options.Clock.Since(*seen) < statusPolicyRest {
		return nil, nil
	}
	problem, err := lacks(ctx, c.live, statusPolicy)
	if problem == nil && err == nil {
		c.reports.Store(ptr.To(c.options.Clock.Now()))
	}
	return problem, err
}

// lacks says what a policy lacks, or nil.
func lacks(ctx context.Context, r client.Reader, name string) (*reasons.Problem, error) {
	refused := func(what string) *reasons.Problem {
		return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "nothing is delivered: " + what + ": apply config/policies"}
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, policy); apierrors.IsNotFound(err) {
		return refused("the admission policy " + name + " is missing"), nil
	} else if err != nil {
		return nil, fmt.Errorf("get the admission policy %s: %w", name, err)
	}
	// Unset means Fail.
	if fail := policy.Spec.FailurePolicy; policy.DeletionTimestamp != nil || fail != nil && *fail != admissionv1.Fail {
		return refused("the admission policy " + name + " does not have failurePolicy Fail"), nil
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, binding); apierrors.IsNotFound(err) {
		return refused("the binding of the admission policy " + name + " is missing"), nil
	} else if err != nil {
		return nil, fmt.Errorf("get the binding of the admission policy %s: %w", name, err)
	}
	if binding.DeletionTimestamp != nil || binding.Spec.PolicyName != name || binding.Spec.MatchResources != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return refused("the binding of the admission policy " + name + " does not deny everywhere"), nil
	}
	return nil, nil
}
