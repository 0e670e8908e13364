// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// plugins objects unless exactly one plugin pod of the Module runs on the node, and it is that of
// the version.
func (s *scenario) plugins(ctx context.Context, node, version string) error {
	var pods corev1.PodList
	err := shared.Admin.List(ctx, &pods, client.InNamespace(s.key.Namespace),
		client.MatchingLabels{v1beta1.ModuleNameLabel: s.key.Name, v1beta1.RoleLabel: "device-plugin"})
	if err != nil {
		return err
	}
	var found []string
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node {
			found = append(found, pods.Items[i].Labels[v1beta1.VersionScheduleLabel(s.key.Namespace, s.key.Name)])
		}
	}
	if len(found) != 1 || found[0] != version {
		return fmt.Errorf("plugin pods on %s are of versions %v, not just %s", node, found, version)
	}
	return nil
}
