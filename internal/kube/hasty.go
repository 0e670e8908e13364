// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Hasty is config for clients to whom a refused eviction comes back at once. Otherwise client-go sleeps for as long as the answer asks for and
// tries again by itself, up to ten times, while whoever evicts could go on with other nodes.
func Hasty(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return hasty{next} })
	return c
}

type hasty struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (h hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction") {
		answer.Header.Del("Retry-After")
	}
	return answer, err //nolint:wrapcheck // a link of a chain passes on what it gets
}
