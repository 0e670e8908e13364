// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// NotLinkLocal is what looks at each address before it is called.
var NotLinkLocal = notLinkLocal

// OperatorOver is [Operator] with another way to the network.
func OperatorOver(c client.Client, live client.Reader, network http.RoundTripper) kit.Operator[*api.Lolcow] {
	o := newOperator(c, live)
	o.http.Transport = network
	return o.kit()
}
