// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Patience is how long a read waits for our own writes to show, longer than a busy cache lags.
const Patience = 5 * time.Second

// lookAgain is how often the version of a cache is looked at whose watch is down.
const lookAgain = 100 * time.Millisecond

// Patient bounds how long reads wait for the client's own writes. The cache knows a write by an
// event of its version or a later one, which may never come for an object that was deleted while
// the watch was down. So after the limit, what the cache has is taken as soon as it is of the
// write's version or later. Until then its watch is down: what is decided by such a cache has been
// done before, and does not help an API server that comes back. Where the version cannot be told,
// what the cache has is taken at once: callers must bear an outdated answer.
func Patient(c client.Client, informers cache.Informers, limit time.Duration) client.Client {
	return patient{Client: c, informers: informers, limit: limit}
}

type patient struct {
	client.Client
	informers cache.Informers
	limit     time.Duration
}

// Get implements client.Reader.
func (p patient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return p.read(ctx, func(ctx context.Context) error { return p.Client.Get(ctx, key, object, options...) },
		func() client.Object { return object },
		func() error {
			return p.Client.Get(ctx, key, object, append(options, client.DisableReadYourWritesConsistency)...)
		})
}

// List implements client.Reader.
func (p patient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return p.read(ctx, func(ctx context.Context) error { return p.Client.List(ctx, list, options...) },
		func() client.Object { return p.itemOf(list) },
		func() error {
			return p.Client.List(ctx, list, append(options, client.DisableReadYourWritesConsistency)...)
		})
}

func (p patient) read(ctx context.Context, first func(context.Context) error, kind func() client.Object, then func() error) error {
	short, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := first(short)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return err
	}
	if err := p.await(ctx, kind(), awaited(err)); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("The cache does not show our own writes; reading what it has", "after", p.limit)
	return then()
}

// State is which state of a cache is asked for.
type State string

const (
	// OwnWrites waits until the cache shows the client's own writes.
	OwnWrites State = "own writes"
	// AsIs takes what the cache has now.
	AsIs State = "as is"
)

// All returns a cache's own objects of a list's kind, which must not be changed. A list would have
// a copy of each: those of a large fleet are megabytes in every pass.
func All[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Client, list client.ObjectList, state State) ([]P, error) {
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	if state == AsIs {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	if p, ok := c.(patient); ok {
		if store := p.store(ctx, P(new(T)), true); store != nil {
			return lent[P](ctx, p, store, list, append(options, client.Limit(1)))
		}
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it lists
	}
	all := make([]P, 0, meta.LenList(list))
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(P); ok {
			all = append(all, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("go through a %T: %w", list, err)
	}
	return all, nil
}

// lent are the objects of a store, once it has our own writes.
func lent[P client.Object](
	ctx context.Context, p patient, store toolscache.Store, list client.ObjectList, options []client.ListOption,
) ([]P, error) {
	if err := p.List(ctx, list, options...); err != nil {
		return nil, err
	}
	objects := store.List()
	all := make([]P, 0, len(objects))
	for _, object := range objects {
		if o, ok := object.(P); ok {
			all = append(all, o)
		}
	}
	return all, nil
}

// await waits until the cache of an object's kind is of a version or later.
func (p patient) await(ctx context.Context, kind client.Object, version int64) error {
	if version == 0 {
		return nil
	}
	store := p.store(ctx, kind, false)
	if store == nil {
		return nil
	}
	err := wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		has, err := strconv.ParseInt(store.LastStoreSyncResourceVersion(), 10, 64)
		return err != nil || has >= version, nil // what is not a number tells nothing
	})
	if err != nil {
		return fmt.Errorf("wait for the watch of %T, which lacks version %d of our own writes: %w", kind, version, err)
	}
	return nil
}

// store is where the cache keeps objects of a kind, or nil. filled: wait until it has all.
func (p patient) store(ctx context.Context, kind client.Object, filled bool) toolscache.Store {
	if kind == nil || p.informers == nil {
		return nil
	}
	informer, err := p.informers.GetInformer(ctx, kind, cache.BlockUntilSynced(filled))
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok && err == nil {
		return shared.GetStore()
	}
	return nil
}

// itemOf is an empty object of a list's kind, or nil where only metadata are listed: nothing is
// written by these.
func (p patient) itemOf(list client.ObjectList) client.Object {
	gvk, err := p.GroupVersionKindFor(list)
	if _, metadata := list.(*metav1.PartialObjectMetadataList); err != nil || metadata {
		return nil
	}
	item, err := p.Scheme().New(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List")))
	if object, ok := item.(client.Object); ok && err == nil {
		return object
	}
	return nil
}

// unseen is how controller-runtime names the version that its cache lacks.
var unseen = regexp.MustCompile(`observe resource version (\d+)`)

// awaited is the version that a read waited for; 0: it does not say.
func awaited(err error) int64 {
	found := unseen.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	version, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		return 0
	}
	return version
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
