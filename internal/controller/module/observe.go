// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/strikes"
)

// crdNames are the definitions whose deletion must not unload anything, that of Modules first.
var crdNames = []string{"modules." + v1beta1.GroupVersion.Group, "nodemodulesconfigs." + v1beta1.GroupVersion.Group}

// snapshot is what one pass sees. Objects belong to the cache: nobody may change them.
type snapshot struct {
	key types.NamespacedName
	// module is nil when there is none of that name.
	module *v1beta1.Module
	// nodes are all nodes that matter, by name in order: those of the cluster, and those that only a
	// NodeModulesConfig or a carrier speaks of.
	nodes []view
	// unsealed says why nothing may be delivered; nil when the policies are there that deliveries and reports rely on.
	unsealed *reasons.Problem
	// crdsLeaving is true while one of our CRDs is being deleted.
	crdsLeaving bool
	// allocation is what is known of devices that pods have claimed.
	allocation allocation
	// images are those that are made in the cluster for the Module.
	images []v1alpha1.ModuleImage
	// made counts what goes before the Module's finalizer does.
	made int
	// verdict is what follows from loads that took nodes down.
	verdict strikes.Verdict
	// defined is since when the cluster knows Modules: those of before went with the definition, not by anybody's wish.
	defined metav1.Time
}

// view is one node as far as the Module of the pass is concerned. What is not there is nil.
type view struct {
	name     string
	node     *corev1.Node
	config   *v1beta1.NodeModulesConfig
	entry    *v1beta1.NodeModuleSpec
	live     *v1beta1.NodeModuleStatus
	attempt  *v1beta1.NodeModuleAttempt
	carriers []*corev1.Pod
}

// follows reports whether the node has an order of this Module or holds its kernel module.
func (v *view) follows() bool { return v.entry != nil || v.live != nil }

// observed reports whether our agent saw the kernel module live. What another operator wrote here before us says nothing
// of what the kernel holds now.
func (v *view) observed() bool { return v.live != nil && v.live.Observed != nil }

// observe is every read of a pass.
func (c *Controller) observe(ctx context.Context, key types.NamespacedName) (*snapshot, error) {
	snap := &snapshot{key: key}
	m := &v1beta1.Module{}
	switch err := c.client.Get(ctx, key, m); {
	case err == nil:
		snap.module = m
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Module: %w", err)
	}
	var err error
	if snap.crdsLeaving, snap.defined, err = definitions(ctx, c.client); err != nil {
		return nil, err
	}
	if snap.unsealed, err = c.unsealed(ctx); err != nil {
		return nil, err
	}
	if snap.allocation, err = c.allocation(ctx, snap.module); err != nil {
		return nil, err
	}
	if snap.images, err = c.images(ctx, snap.module); err != nil {
		return nil, err
	}
	if snap.made, err = c.made(ctx, snap.module); err != nil {
		return nil, err
	}
	return snap, c.views(ctx, snap)
}

// views reads what is known of nodes.
func (c *Controller) views(ctx context.Context, snap *snapshot) error {
	key := snap.key
	// Lists are not copied: they are read only, and a copy of every node per pass is what a pass would mostly cost.
	var nodes corev1.NodeList
	// Labels of nodes are written through the same client by another controller; nothing here depends on those.
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	var configs v1beta1.NodeModulesConfigList
	if err := c.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list NodeModulesConfigs: %w", err)
	}
	var pods corev1.PodList
	err := c.client.List(ctx, &pods, client.InNamespace(key.Namespace), client.HasLabels{v1beta1.CarrierLabel}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list carrier pods: %w", err)
	}
	snap.nodes = join(key, nodes.Items, configs.Items, pods.Items)
	var fleet strikes.Fleet
	exists := make(map[string]bool, len(nodes.Items))
	for i := range nodes.Items {
		exists[nodes.Items[i].Name] = true
	}
	for i := range configs.Items {
		if exists[configs.Items[i].Name] {
			fleet.Add(&configs.Items[i])
		}
	}
	if snap.module != nil {
		snap.verdict = fleet.Judge(key, placement.RetryAsked(snap.module))
	}
	return nil
}

// join brings together by node name what concerns the Module.
func join(key types.NamespacedName, nodes []corev1.Node, configs []v1beta1.NodeModulesConfig, pods []corev1.Pod) []view {
	byName := make(map[string]*view, len(nodes))
	at := func(name string) *view {
		if byName[name] == nil {
			byName[name] = &view{name: name}
		}
		return byName[name]
	}
	for i := range nodes {
		at(nodes[i].Name).node = &nodes[i]
	}
	for i := range configs {
		at(configs[i].Name).addConfig(key, &configs[i])
	}
	for i := range pods {
		if delivery.IsCarrier(&pods[i]) && carrierOf(&pods[i]) == key {
			v := at(pods[i].Spec.NodeName)
			v.carriers = append(v.carriers, &pods[i])
		}
	}
	views := make([]view, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		views = append(views, *byName[name])
	}
	return views
}

func (v *view) addConfig(key types.NamespacedName, config *v1beta1.NodeModulesConfig) {
	v.config = config
	for i := range config.Spec.Modules {
		if e := &config.Spec.Modules[i]; e.Namespace == key.Namespace && e.Name == key.Name {
			v.entry = e
		}
	}
	for i := range config.Status.Modules {
		if s := &config.Status.Modules[i]; s.Namespace == key.Namespace && s.Name == key.Name {
			v.live = s
		}
	}
	for i := range config.Status.Attempts {
		if a := &config.Status.Attempts[i]; a.Namespace == key.Namespace && a.Name == key.Name {
			v.attempt = a
		}
	}
}

// carrierOf is the Module that a carrier pod delivers for. Carriers live in their Module's namespace, so that a pod
// elsewhere that claims otherwise is nobody's.
func carrierOf(pod client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetAnnotations()[v1beta1.ModuleNameAnnotation]}
}

// departed asks the API server itself whether the Module of a pass that unloads everywhere is leaving, or gone. The cache
// may lag behind: it may lack a Module that was made a moment ago, and when the CRDs are deleted, which deletes the Modules
// too, it may show the second before the first.
func (c *Controller) departed(ctx context.Context, snap *snapshot) (bool, error) {
	if leaving, _, err := definitions(ctx, c.live); err != nil || leaving {
		return false, err
	}
	m := &v1beta1.Module{}
	switch err := c.live.Get(ctx, snap.key, m); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get Module: %w", err)
	}
	return m.DeletionTimestamp != nil, nil
}

// definitions reports whether one of our CRDs is being deleted or gone, and since when there is that of Modules.
func definitions(ctx context.Context, reader client.Reader) (leaving bool, since metav1.Time, err error) {
	for i, name := range crdNames {
		crd := definition()
		switch err := reader.Get(ctx, client.ObjectKey{Name: name}, crd); {
		case apierrors.IsNotFound(err):
			// Gone altogether. Whoever brings it back brings new objects, which are read then.
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

// definition is an empty CustomResourceDefinition of which only the metadata is read.
func definition() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return crd
}
