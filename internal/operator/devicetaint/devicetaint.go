// SPDX-License-Identifier: Apache-2.0

// Package devicetaint keeps pods off the devices of nodes whose kernel module is about to change,
// by DeviceTaintRules of resource.k8s.io: pods get no device whose taint their claim does not
// tolerate.
//
// Reads: ResourceSlices, DeviceTaintRules. Writes: a DeviceTaintRule for each pool of a driver's
// devices on a node.
package devicetaint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

const (
	// Key of the taint. A claim that tolerates it gets devices nevertheless.
	Key = "drover.dev/unload"
	// nodeAnnotation on a rule names its node: names of nodes are too long for a label.
	nodeAnnotation = "drover.dev/node"
	// parallelism bounds the writes of one call.
	parallelism = 16
	// digits of the digest in a rule's name.
	digits = 32
)

// Kind is the DeviceTaintRule in the version that the API server prefers; nil: it serves none.
// Kubernetes 1.37 has it in resource.k8s.io/v1, 1.36 in v1beta2 behind DRADeviceTaintRules.
func Kind(mapper meta.RESTMapper) (*schema.GroupVersionKind, error) {
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: resourcev1.GroupName, Kind: "DeviceTaintRule"})
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find out whether the API server serves DeviceTaintRules: %w", err)
	}
	return &mapping.GroupVersionKind, nil
}

// Rules are the DeviceTaintRules of Modules.
type Rules struct {
	client client.Client
	kind   schema.GroupVersionKind

	mu sync.Mutex
	// some are the Modules that may have rules; nil: the API server has not been asked yet.
	some map[types.NamespacedName]bool
}

// New makes them. c has no cache, since rules are rare.
func New(c client.Client, kind schema.GroupVersionKind) *Rules {
	return &Rules{client: c, kind: kind}
}

// Keep taints the driver's devices on the nodes of begin, leaves the taints on those of stay, and
// removes all others of the Module. It does all that it can, and returns what it could not do.
func (r *Rules) Keep(ctx context.Context, module types.NamespacedName, driver string, begin, stay map[string]bool) error {
	some, err := r.may(ctx, module)
	if driver == "" && !some {
		return nil // also where rules may not be listed: a Module that has no driver needs none
	}
	if err != nil || !some && len(begin) == 0 {
		return err
	}
	rules, err := r.list(ctx, labels(module))
	if err != nil {
		return err
	}
	var leave []*unstructured.Unstructured
	tainted := map[string]bool{}
	for i := range rules {
		rule, node := &rules[i], rules[i].GetAnnotations()[nodeAnnotation]
		if driverOf(rule) == driver && (begin[node] || stay[node]) {
			tainted[node] = true
		} else {
			leave = append(leave, rule)
		}
	}
	var fresh []string
	for node := range begin {
		if !tainted[node] {
			fresh = append(fresh, node)
		}
	}
	slices.Sort(fresh)
	err = errors.Join(
		kube.Each(ctx, parallelism, leave, func(ctx context.Context, rule *unstructured.Unstructured) error {
			return kube.Delete(ctx, r.client, rule)
		}),
		kube.Each(ctx, parallelism, fresh, func(ctx context.Context, node string) error { return r.taint(ctx, module, driver, node) }))
	r.note(module, err != nil || len(tainted)+len(fresh) > 0)
	return err
}

// RemoveAll deletes all rules that this operator made, and returns how many there were.
func (r *Rules) RemoveAll(ctx context.Context) (int, error) {
	rules, err := r.list(ctx, client.HasLabels{v1beta1.ModuleNameLabel, v1beta1.ModuleNamespaceLabel})
	if err != nil {
		return 0, err
	}
	return len(rules), kube.Each(ctx, parallelism, rules, func(ctx context.Context, rule unstructured.Unstructured) error {
		return kube.Delete(ctx, r.client, &rule)
	})
}

// taint makes a rule for each pool of the driver's devices on a node, as the slices name them.
func (r *Rules) taint(ctx context.Context, module types.NamespacedName, driver, node string) error {
	var published resourcev1.ResourceSliceList
	fields := client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: node, resourcev1.ResourceSliceSelectorDriver: driver}
	if err := r.client.List(ctx, &published, fields); err != nil {
		return fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	var pools []string
	for i := range published.Items {
		if pool := published.Items[i].Spec.Pool.Name; !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	var errs []error
	for _, pool := range pools {
		err := r.client.Create(ctx, r.rule(module, driver, node, pool), kube.OwnerTaint)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("create a DeviceTaintRule for driver %s on node %s: %w", driver, node, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Rules) rule(module types.NamespacedName, driver, node, pool string) *unstructured.Unstructured {
	rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"deviceSelector": map[string]any{"driver": driver, "pool": pool},
		"taint":          map[string]any{"key": Key, "effect": string(resourcev1.DeviceTaintEffectNoSchedule)},
	}}}
	rule.SetGroupVersionKind(r.kind)
	rule.SetName("drover-" + kube.Digest(module.String()+" "+driver+" "+node+" "+pool, digits))
	rule.SetLabels(labels(module))
	rule.SetAnnotations(map[string]string{nodeAnnotation: node})
	return rule
}

// list are the rules that this operator made, also in earlier processes.
func (r *Rules) list(ctx context.Context, which client.ListOption) ([]unstructured.Unstructured, error) {
	var rules unstructured.UnstructuredList
	rules.SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	if err := r.client.List(ctx, &rules, which); err != nil {
		return nil, fmt.Errorf("list DeviceTaintRules: %w", err)
	}
	return slices.DeleteFunc(rules.Items, func(rule unstructured.Unstructured) bool { return !kube.WrittenBy(&rule, kube.OwnerTaint) }), nil
}

func labels(module types.NamespacedName) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.ModuleNameLabel: module.Name, v1beta1.ModuleNamespaceLabel: module.Namespace}
}

func driverOf(rule *unstructured.Unstructured) string {
	driver, _, _ := unstructured.NestedString(rule.Object, "spec", "deviceSelector", "driver")
	return driver
}

// may reports whether the Module may have rules. The first call of a process asks the API server.
func (r *Rules) may(ctx context.Context, module types.NamespacedName) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.some != nil {
		return r.some[module], nil
	}
	rules, err := r.list(ctx, client.HasLabels{v1beta1.ModuleNameLabel, v1beta1.ModuleNamespaceLabel})
	if err != nil {
		return false, err
	}
	r.some = map[types.NamespacedName]bool{}
	for i := range rules {
		of := rules[i].GetLabels()
		r.some[types.NamespacedName{Namespace: of[v1beta1.ModuleNamespaceLabel], Name: of[v1beta1.ModuleNameLabel]}] = true
	}
	return r.some[module], nil
}

func (r *Rules) note(module types.NamespacedName, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if some {
		r.some[module] = true
	} else {
		delete(r.some, module)
	}
}
