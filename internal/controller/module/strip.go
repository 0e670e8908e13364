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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kube"
)

// OrdersFinalizer keeps a NodeModulesConfig while an order to unload stands in it, and so keeps the order: with the object,
// a Module that is being deleted would lose what it waits for, and go while its kernel module is in the kernel. It comes
// with the first such order and goes with the last, with the node, and while the CRDs leave.
const OrdersFinalizer = "drover.dev/orders"

// held reports whether the finalizer is there.
func held(config *v1beta1.NodeModulesConfig) bool {
	return config != nil && slices.Contains(config.Finalizers, OrdersFinalizer)
}

// holdable reports whether the finalizer may be asked for: to an object that is being deleted, none can be added.
func holdable(config *v1beta1.NodeModulesConfig) bool {
	return config == nil || config.DeletionTimestamp == nil || held(config)
}

// unloads reports whether an order to unload stands in the object.
func unloads(config *v1beta1.NodeModulesConfig) bool {
	return slices.ContainsFunc(config.Spec.Modules, func(e v1beta1.NodeModuleSpec) bool { return e.State == v1beta1.NodeModuleAbsent })
}

// operation is one line of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// remove takes the entry out, and the finalizer when it was the last order to unload. An object in which nothing else
// stands goes too, as it was read: another Module's entry that came since is a conflict.
func (c *Controller) remove(ctx context.Context, s step) error {
	config := s.view.config.DeepCopy()
	var patch []operation
	if i := slices.IndexFunc(config.Spec.Modules, s.concerns); i >= 0 {
		patch = append(patch, takeEntry(config, i)...)
		config.Spec.Modules = slices.Delete(config.Spec.Modules, i, i+1)
	}
	patch = append(patch, takeLabels(config, s.key)...)
	if !unloads(config) {
		patch = append(patch, takeFinalizer(config)...)
	}
	last := bare(config)
	if last && !held(config) {
		return kube.DeleteUnchanged(ctx, c.client, config)
	}
	owner, err := c.takeOwner(ctx, s, config)
	if err != nil {
		return err
	}
	if err := c.strip(ctx, s, config, append(patch, owner...)); err != nil || !last || config.DeletionTimestamp != nil {
		return err
	}
	return kube.DeleteUnchanged(ctx, c.client, config)
}

// free takes the finalizer off.
func (c *Controller) free(ctx context.Context, s step) error {
	config := s.view.config.DeepCopy()
	return c.strip(ctx, s, config, takeFinalizer(config))
}

// strip takes something out of the object as it was read, whoever owns it, and leaves in config what the API server
// answered. An apply that leaves an entry out would keep what others own of it, after a restore from a backup for example:
// an entry without a state, which orders a load.
func (c *Controller) strip(ctx context.Context, s step, config *v1beta1.NodeModulesConfig, patch []operation) error {
	patch = slices.Insert(patch, 0, operation{Op: "test", Path: "/metadata/resourceVersion", Value: config.ResourceVersion})
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of NodeModulesConfig %s: %w", config.Name, err)
	}
	err = c.client.Patch(ctx, config, client.RawPatch(types.JSONPatchType, text), kube.ModuleOwner(s.key.Namespace, s.key.Name))
	if unfit(err) {
		err = apierrors.NewConflict(schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "nodemodulesconfigs"}, config.Name, err)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take orders out of NodeModulesConfig %s: %w", config.Name, err)
	}
	return nil
}

func takeEntry(config *v1beta1.NodeModulesConfig, i int) []operation {
	e, at := &config.Spec.Modules[i], fmt.Sprintf("/spec/modules/%d", i)
	return []operation{
		{Op: "test", Path: at + "/namespace", Value: e.Namespace},
		{Op: "test", Path: at + "/name", Value: e.Name},
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
	i := slices.Index(config.Finalizers, OrdersFinalizer)
	if i < 0 {
		return nil
	}
	at := fmt.Sprintf("/metadata/finalizers/%d", i)
	return []operation{{Op: "test", Path: at, Value: OrdersFinalizer}, {Op: "remove", Path: at}}
}

// takeOwner takes out what metadata.managedFields says of the Module's field owner: the rest that it owns, the owner reference, each Module owns
// too, and the entry would stay for ever. The cache does not hold these fields. An object that is not as it was read has none: the patch is
// refused then.
func (c *Controller) takeOwner(ctx context.Context, s step, config *v1beta1.NodeModulesConfig) ([]operation, error) {
	now := &v1beta1.NodeModulesConfig{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(config), now); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get NodeModulesConfig %s: %w", config.Name, err)
	}
	if now.ResourceVersion != config.ResourceVersion {
		return nil, nil
	}
	var patch []operation
	owner := string(kube.ModuleOwner(s.key.Namespace, s.key.Name))
	for i := len(now.ManagedFields) - 1; i >= 0; i-- {
		if now.ManagedFields[i].Manager == owner {
			patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("/metadata/managedFields/%d", i)})
		}
	}
	return patch, nil
}

// unfit reports whether a JSON patch was refused because a test in it failed: the object is not as it was read. The API
// server answers that as it does an invalid object, but names no field.
func unfit(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
