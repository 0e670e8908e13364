// SPDX-License-Identifier: Apache-2.0

// Package sources reads the ConfigMaps that builds name: Dockerfiles and the sources of native
// builds. RBAC cannot tell these from other ConfigMaps. So this right is not among those that the
// operator has anywhere: the component config/build grants it, with the flags that turn builds on.
package sources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch

// Check returns an error unless the operator may read ConfigMaps. Without it, caches of ConfigMaps
// would wait for that right, and the operator end without a word about why.
func Check(ctx context.Context, live client.Reader) error {
	if err := live.List(ctx, &corev1.ConfigMapList{}, client.Limit(1)); err != nil {
		return fmt.Errorf("--signer-image needs the rights of the component config/build, or of the chart's build.enabled: %w", err)
	}
	return nil
}

// Read returns ConfigMaps of a namespace by name, as the API server has them. One that is missing
// is left out.
func Read(ctx context.Context, live client.Reader, namespace string, names []string) (map[string]*corev1.ConfigMap, error) {
	found := map[string]*corev1.ConfigMap{}
	for _, name := range names {
		source := &corev1.ConfigMap{}
		switch err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, source); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get ConfigMap %s/%s: %w", namespace, name, err)
		default:
			found[name] = source
		}
	}
	return found, nil
}
