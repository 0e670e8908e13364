// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Hasty returns a config for clients that get a refused eviction back at once. Otherwise client-go
// waits and tries again up to ten times, while the caller could go on with other nodes.
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
