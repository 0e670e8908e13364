// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// patience is how long a read waits for our own writes to show, longer than a busy cache lags.
const patience = 5 * time.Second

// Patient bounds how long reads wait for the client's own writes. The cache knows a write by an
// event of its version or a later one, which may never come for an object that was deleted while
// the watch was down. Such a read takes what the cache has: callers must bear an outdated answer.
func Patient(c client.Client) client.Client { return patient{Client: c, limit: patience} }

type patient struct {
	client.Client
	limit time.Duration
}

// Get implements client.Reader.
func (p patient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return p.read(ctx, func(ctx context.Context) error { return p.Client.Get(ctx, key, object, options...) },
		func() error {
			return p.Client.Get(ctx, key, object, append(options, client.DisableReadYourWritesConsistency)...)
		})
}

// List implements client.Reader.
func (p patient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return p.read(ctx, func(ctx context.Context) error { return p.Client.List(ctx, list, options...) },
		func() error {
			return p.Client.List(ctx, list, append(options, client.DisableReadYourWritesConsistency)...)
		})
}

func (p patient) read(ctx context.Context, first func(context.Context) error, then func() error) error {
	short, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := first(short)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("The cache does not show our own writes; reading what it has", "after", p.limit)
	return then()
}

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
