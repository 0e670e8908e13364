// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// rolledOut returns nil if all pods of the Deployment are up to date and available, or why not.
func rolledOut(d *appsv1.Deployment) error {
	if d.Status.ObservedGeneration < d.Generation {
		return kit.Waiting(api.ReasonRollingOut, "Deployment %s is new or changed", d.Name)
	}
	for _, c := range d.Status.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed {
			return kit.Refused(api.ReasonRolloutFailed, "Deployment %s: %s: %s (kubectl describe pods -l app.kubernetes.io/instance=%s)", d.Name,
				c.Reason, c.Message, d.Name)
		}
	}
	want, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
	if s.UpdatedReplicas < want || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas {
		return kit.Waiting(api.ReasonRollingOut, "Deployment %s: %d of %d pods are up to date, %d are available",
			d.Name, s.UpdatedReplicas, want, s.AvailableReplicas)
	}
	return nil
}
