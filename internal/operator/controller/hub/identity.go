// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// Identity of this hub: the UID of kube-system, which outlives every installation of an operator.
func Identity(ctx context.Context, live client.Reader) (string, error) {
	system := &corev1.Namespace{}
	if err := live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("identify this hub: get Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}
