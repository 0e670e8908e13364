// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/condition"
	"github.com/drover-project/drover/internal/operator/devicetaint"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
)

// remaining are the Modules that are there.
type remaining struct {
	modules map[types.NamespacedName]bool
	// labels that nodes may have because of them.
	labels map[string]bool
}

func left(ctx context.Context, c client.Client) (*remaining, error) {
	r := &remaining{modules: map[types.NamespacedName]bool{}}
	var names []types.NamespacedName
	err := pages(ctx, c, listOf(v1beta1.GroupVersion.WithKind("Module")), func(list *metav1.PartialObjectMetadataList) {
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			names, r.modules[key] = append(names, key), true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	r.labels = nodemarks.Speaking(names)
	return r, nil
}

// others takes off what Drover has put on objects of others, and counts those objects. With KMM's
// operator at work (alone is false), what the two share stays.
func others(ctx context.Context, c client.Client, alone bool, released map[string]int) error {
	var modules *remaining
	var errs []error
	if alone {
		var err error
		if modules, err = left(ctx, c); err != nil {
			errs = append(errs, err) // what does not depend on them goes nevertheless
		}
	}
	for kind, take := range map[string]func(context.Context, client.Client, *remaining) (int, error){
		"Node": nodes, "DeviceTaintRule": taints, "DeviceClass": classes,
	} {
		n, err := take(ctx, c, modules)
		count(released, kind, n)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nodes takes cordons, stale labels and the condition off Nodes. Without modules, labels stay.
func nodes(ctx context.Context, c client.Client, modules *remaining) (int, error) {
	var marked []corev1.Node
	err := pages(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} }, func(list *corev1.NodeList) {
		for i := range list.Items {
			if has(&list.Items[i], modules) {
				marked = append(marked, list.Items[i])
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list Nodes: %w", err)
	}
	return len(marked), kube.Each(ctx, parallel, marked, func(ctx context.Context, node corev1.Node) error {
		return unmark(ctx, c, &node, modules)
	})
}

func count(released map[string]int, kind string, n int) {
	if n > 0 {
		released[kind] += n
	}
}

func has(node *corev1.Node, modules *remaining) bool {
	return len(nodemarks.CordonedFor(node)) > 0 || nodemarks.Condition(node) != nil || len(stale(node, modules)) > 0
}

// stale are labels that no Module needs any more. Those of Modules that are there stay: pods of
// device plugins and of others are on a node by them.
func stale(node *corev1.Node, modules *remaining) []string {
	if modules == nil {
		return nil
	}
	_, gone := nodemarks.Labels(node, modules.labels)
	return gone
}

// unmark writes to one node, part by part, as each has one writer. What has changed since is read
// again.
func unmark(ctx context.Context, c client.Client, node *corev1.Node, modules *remaining) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { //nolint:wrapcheck // the errors say what was tried
		err := unmarkNow(ctx, c, node, modules)
		if apierrors.IsConflict(err) {
			if read := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(node), node)); read != nil {
				return fmt.Errorf("get Node %s: %w", node.Name, read)
			}
		}
		return err
	})
}

func unmarkNow(ctx context.Context, c client.Client, node *corev1.Node, modules *remaining) error {
	patch, err := drain.Lift(node)
	if err == nil && patch != nil {
		err = c.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerDrain)
	}
	if err != nil {
		return kube.UnlessGone("take the cordon off Node "+node.Name, err)
	}
	if gone := stale(node, modules); len(gone) > 0 {
		if patch, err = without(gone); err != nil {
			return err
		}
		if err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerNode); err != nil {
			return kube.UnlessGone("take labels off Node "+node.Name, err)
		}
	}
	patch, err = condition.Removal(node)
	if err == nil && patch != nil {
		err = c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch), kube.OwnerCondition)
	}
	return kube.UnlessGone("take the condition off Node "+node.Name, err)
}

func without(labels []string) ([]byte, error) {
	change := map[string]any{}
	for _, label := range labels {
		change[label] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
	if err != nil {
		return nil, fmt.Errorf("encode labels to take off: %w", err)
	}
	return patch, nil
}

// taints deletes all DeviceTaintRules that Drover has made.
func taints(ctx context.Context, c client.Client, _ *remaining) (int, error) {
	kind, err := devicetaint.Kind(c.RESTMapper())
	if err != nil || kind == nil {
		return 0, err
	}
	return devicetaint.New(c, *kind).RemoveAll(ctx)
}

// classes deletes the DeviceClasses of Modules that are gone: they belong to the cluster, and go
// with no namespace.
func classes(ctx context.Context, c client.Client, modules *remaining) (int, error) {
	if modules == nil {
		return 0, nil
	}
	var gone []*resourcev1.DeviceClass
	fresh := func() *resourcev1.DeviceClassList { return &resourcev1.DeviceClassList{} }
	err := pages(ctx, c, fresh, func(list *resourcev1.DeviceClassList) {
		for i := range list.Items {
			class := &list.Items[i]
			of := types.NamespacedName{Namespace: class.Labels[v1beta1.ModuleNamespaceLabel], Name: class.Labels[v1beta1.ModuleNameLabel]}
			if of.Name != "" && !modules.modules[of] && kube.WrittenBy(class, kube.OwnerPlugin) {
				gone = append(gone, class)
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list DeviceClasses: %w", err)
	}
	return len(gone), kube.Each(ctx, parallel, gone, func(ctx context.Context, class *resourcev1.DeviceClass) error {
		return kube.Delete(ctx, c, class)
	})
}
