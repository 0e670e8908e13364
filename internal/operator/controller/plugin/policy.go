// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// +kubebuilder:rbac:groups=drover.dev,resources=modulepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// allowed is what ModulePolicies say of a Module's workload.
type allowed struct {
	denied   *reasons.Problem // why it may not run, or nil
	priority string           // the priority class of its pods
}

func (c *Controller) allowed(ctx context.Context, module *v1beta1.Module) (allowed, error) {
	set, namespace, err := policies.Read(ctx, c.client, c.live, module.Namespace)
	if err != nil {
		return allowed{}, err
	}
	return allowed{
		denied:   set.DeniedWorkload(v1alpha1.PolicyEnforce, module, namespace),
		priority: set.Priority(nodeCritical, namespace),
	}, nil
}

// stands reports whether all that the Module asks for is there already. Only what is new is denied.
func (c *Controller) stands(module *v1beta1.Module, pods Pods, want *appsv1.DaemonSet, now *have) (bool, error) {
	current := find(now.daemonSets, want.Name)
	if current == nil {
		return false, nil
	}
	if stays, err := stays(module, pods, want, current); !stays || err != nil {
		return false, err
	}
	for _, class := range DeviceClasses(module) {
		current := find(now.classes, class.Name)
		if current == nil {
			return false, nil
		}
		if same, err := sameClass(class, current); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}
