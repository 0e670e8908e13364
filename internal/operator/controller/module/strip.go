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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/kube"
)

// operation is one line of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// remove takes the order out, and the finalizer with the last order to unload. An object without
// anything else goes too, as it was read: an order that came since is a conflict.
func (c *Controller) remove(ctx context.Context, s nodeplan.Step) error {
	config := s.Node.Config.DeepCopy()
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
func (c *Controller) free(ctx context.Context, s nodeplan.Step) error {
	config := s.Node.Config.DeepCopy()
	return c.strip(ctx, s, config, takeFinalizer(config))
}

// strip takes something out of the object as it was read, whoever owns it, and leaves in config
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
		resource := v1beta1.GroupVersion.WithResource("nodemodulesconfigs").GroupResource()
		err = apierrors.NewConflict(resource, config.Name, err)
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

// takeOwner takes the Module's field owner out of metadata.managedFields: it owns the owner
// reference, too, as each Module does, and would be listed for ever. The cache lacks these fields.
// None are taken out of an object that is not as it was read: the patch is refused then.
func (c *Controller) takeOwner(ctx context.Context, s nodeplan.Step, config *v1beta1.NodeModulesConfig) ([]operation, error) {
	now := &v1beta1.NodeModulesConfig{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(config), now); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get NodeModulesConfig %s: %w", config.Name, err)
	}
	if now.ResourceVersion != config.ResourceVersion {
		return nil, nil
	}
	var patch []operation
	owner := string(kube.ModuleOwner(s.Key.Namespace, s.Key.Name))
	for i := len(now.ManagedFields) - 1; i >= 0; i-- {
		if now.ManagedFields[i].Manager == owner {
			patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("/metadata/managedFields/%d", i)})
		}
	}
	return patch, nil
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
