// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/drover-project/drover/test/sim/memapi"
	"github.com/drover-project/drover/test/sim/memetcd"
)

// Options are what a process gets from outside. All are required.
type Options struct {
	API *memapi.Server
	// Transport is how it reaches the API, under its identity.
	Transport http.RoundTripper
	Scheme    *runtime.Scheme
	Mapper    meta.RESTMapper
	Cache     cache.Options
	Clock     clock.Clock
}

// Process is one process of the operator. It is not for use by several goroutines.
type Process struct {
	manager.Manager // what controllers do not ask for

	o        Options
	etcd     *memetcd.Store
	mapper   meta.RESTMapper
	live     client.Client
	client   client.Client
	views    map[kind]*view
	indexes  map[indexKey]client.IndexerFunc
	controls []*control
	ctx      context.Context //nolint:containedctx // of the process
	cancel   context.CancelFunc
}

type indexKey struct {
	kind  kind
	field string
}

// control is one controller and its queue.
type control struct {
	name  string
	do    reconcile.Reconciler
	warm  func(context.Context) error // starts its watches
	queue *queue
}

// New starts a process: set adds its controllers, by SetupWithManager.
func New(ctx context.Context, o Options, set func(*Process) error) (*Process, error) {
	p := &Process{o: o, etcd: o.API.Etcd(), mapper: o.Mapper, views: map[kind]*view{}, indexes: map[indexKey]client.IndexerFunc{}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	live, err := client.New(o.API.Config(nil),
		client.Options{HTTPClient: &http.Client{Transport: o.Transport}, Scheme: o.Scheme, Mapper: o.Mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	p.live, p.client = live, &cached{live, p}
	if err := set(p); err != nil {
		return nil, err
	}
	for _, c := range p.controls {
		if err := c.warm(p.ctx); err != nil {
			return nil, fmt.Errorf("start the watches of %s: %w", c.name, err)
		}
	}
	return p, nil
}

// Stop ends the process. What its controllers have written stays.
func (p *Process) Stop() { p.cancel() }

// Live is a client without a cache.
func (p *Process) Live() client.Client { return p.live }

// Kinds names the kinds of which the process has a cache, sorted.
func (p *Process) Kinds() []string {
	var names []string
	for k := range p.views {
		if !slices.Contains(names, k.gvk.Kind) {
			names = append(names, k.gvk.Kind)
		}
	}
	slices.Sort(names)
	return names
}

// Deliver brings the next event of a kind to its caches; false: they have all.
func (p *Process) Deliver(name string) (any bool) {
	for _, partial := range []bool{false, true} {
		for k, v := range p.views {
			if k.gvk.Kind == name && k.partial == partial && v.deliver() {
				any = true
			}
		}
	}
	return any
}

// Revision is up to where the cache of a kind is; 0: the process has none.
func (p *Process) Revision(name string) (at int64) {
	for k, v := range p.views {
		if k.gvk.Kind == name && !k.partial {
			at = v.at
		}
	}
	return at
}

// Relist makes the caches of a kind anew, as after a watch that was too far behind.
func (p *Process) Relist(name string) {
	for k, v := range p.views {
		if k.gvk.Kind == name {
			v.list()
		}
	}
}

// Controllers names the controllers, in the order in which they were added.
func (p *Process) Controllers() (names []string) {
	for _, c := range p.controls {
		names = append(names, c.name)
	}
	return names
}

// Pass has a controller, by its place in Controllers, take the first request that is due; ok is
// false where there is none. The error is the controller's; the request is queued again.
func (p *Process) Pass(i int) (r reconcile.Request, ok bool, err error) {
	c := p.controls[i]
	ready := c.queue.ready()
	if len(ready) == 0 {
		return reconcile.Request{}, false, nil
	}
	c.queue.take(ready[0])
	result, err := c.do.Reconcile(p.ctx, ready[0])
	switch {
	case err != nil:
		c.queue.AddRateLimited(ready[0])
	case result.RequeueAfter > 0:
		c.queue.Forget(ready[0])
		c.queue.AddAfter(ready[0], result.RequeueAfter)
	default:
		c.queue.Forget(ready[0])
	}
	return ready[0], true, err
}

// Next is when a controller has something to do without an event; zero: none has.
func (p *Process) Next() (first time.Time) {
	for _, c := range p.controls {
		if at := c.queue.next(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// What the builder of controllers asks of a manager.

func (p *Process) GetScheme() *runtime.Scheme           { return p.o.Scheme }
func (p *Process) GetClient() client.Client             { return p.client }
func (p *Process) GetAPIReader() client.Reader          { return p.live }
func (p *Process) GetCache() cache.Cache                { return informers{p: p} }
func (p *Process) GetFieldIndexer() client.FieldIndexer { return p }
func (p *Process) GetLogger() logr.Logger               { return logr.Discard() }
func (p *Process) GetRESTMapper() meta.RESTMapper       { return p.o.Mapper }
func (p *Process) GetHTTPClient() *http.Client          { return &http.Client{Transport: p.o.Transport} }
func (p *Process) GetEventRecorder(string) recorder.EventRecorder {
	return &events.FakeRecorder{}
}

func (p *Process) GetControllerOptions() ctrlconfig.Controller {
	return ctrlconfig.Controller{SkipNameValidation: ptr.To(true), EnableWarmup: ptr.To(true)}
}

func (p *Process) IndexField(_ context.Context, object client.Object, field string, f client.IndexerFunc) error {
	k, err := kindOf(object, p.o.Scheme)
	p.indexes[indexKey{k, field}] = f
	return err
}

// Add takes a controller; its watches come later, and no workers. What else a process runs, such as
// servers, it does not need here.
func (p *Process) Add(r manager.Runnable) error {
	do, ok := r.(reconcile.Reconciler)
	warm, warms := r.(interface{ Warmup(context.Context) error })
	if !ok || !warms {
		return nil
	}
	c := &control{do: do, warm: warm.Warmup, queue: &queue{clock: p.o.Clock, due: map[reconcile.Request]time.Time{}}}
	fields := reflect.ValueOf(r).Elem()
	c.name = fields.FieldByName("Name").String()
	fields.FieldByName("NewQueue").Set(reflect.ValueOf(
		func(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			c.queue.limiter = limiter
			return c.queue
		}))
	p.controls = append(p.controls, c)
	return nil
}

// informers is the cache as the controllers' watches see it.
type informers struct {
	cache.Cache
	p *Process
}

// registering: a controller's watches are started at the same time.
var registering sync.Mutex

func (i informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	registering.Lock()
	defer registering.Unlock()
	k, err := kindOf(object, i.p.o.Scheme)
	if err != nil {
		return nil, err
	}
	v := i.p.view(k)
	return informer{v.informer, v}, nil
}

func (i informers) WaitForCacheSync(context.Context) bool { return true }

// informer tells a new handler of all that there is, as a shared informer does.
type informer struct {
	*controllertest.FakeInformer
	v *view
}

func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	registering.Lock()
	defer registering.Unlock()
	for _, key := range sorted(i.v.objects) {
		h.OnAdd(i.v.objects[key], true)
	}
	return i.FakeInformer.AddEventHandlerWithOptions(h, o)
}
