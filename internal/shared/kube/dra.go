// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServesDRA reports whether the API server serves DRA, as from Kubernetes 1.34 on.
func ServesDRA(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: resourcev1.GroupName, Kind: "DeviceClass"}, resourcev1.SchemeGroupVersion.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether the API server serves DeviceClasses: %w", err)
	}
	return true, nil
}
