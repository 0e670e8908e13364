// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
)

// Desired are a Lolcow's children: a Deployment and a Service.
func Desired(l *api.Lolcow) ([]client.Object, error) {
	return []client.Object{deployment(l), service(l)}, nil
}
