// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kube"
)

// operation is one line of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// strip takes the Module's entry out of the list whoever owns it. An apply that leaves it out would keep what others own
// too, after a restore from a backup for example: an entry without a state, which orders a load.
func (c *Controller) strip(ctx context.Context, s step) error {
	config := s.view.config.DeepCopy()
	patch := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: config.ResourceVersion}}
	for i := range config.Spec.Modules {
		if e := &config.Spec.Modules[i]; e.Namespace == s.key.Namespace && e.Name == s.key.Name {
			at := fmt.Sprintf("/spec/modules/%d", i)
			patch = append(patch,
				operation{Op: "test", Path: at + "/namespace", Value: e.Namespace},
				operation{Op: "test", Path: at + "/name", Value: e.Name},
				operation{Op: "remove", Path: at})
		}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of NodeModulesConfig %s: %w", config.Name, err)
	}
	err = c.client.Patch(ctx, config, client.RawPatch(types.JSONPatchType, text), kube.ModuleOwner(s.key.Namespace, s.key.Name))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case unfit(err):
		err = apierrors.NewConflict(schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "nodemodulesconfigs"}, config.Name, err)
	}
	if err != nil {
		return fmt.Errorf("take an entry out of NodeModulesConfig %s: %w", config.Name, err)
	}
	return nil
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
