// SPDX-License-Identifier: Apache-2.0

// Package agent makes one node's kernel hold what its NodeModulesConfig orders, and reports what
// the kernel says.
//
// It is the loop: it watches the orders, and keeps a record of them for boots without an API
// server. In a pass it asks package decide about each order, has package execute do what was
// decided, and publishes what package report makes of it. An unload is an order (state: Absent),
// never an absence: what the agent has loaded and finds no order for, it keeps and reports.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// The role of the agent. Its writes are narrowed further, to its own node, by an admission policy.
//
//+kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs,verbs=get;list;watch
//+kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs/status,verbs=patch
//+kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

const (
	answerGrace  = 2 * time.Second  // in which the API server may answer at start until the record is used
	brokenPause  = 5 * time.Second  // after the agent's own means failed
	minimalPause = time.Millisecond // between two looks, whatever was to be done at once
)

// Options are everything an Agent needs from outside.
type Options struct {
	execute.Parts                // Host and Store are required; the Clock is the real one unless set
	NodeName      string         // the node's, and so its NodeModulesConfig's
	StateDir      string         // of the agent's own, and survives reboots; it is made if missing
	Config        *rest.Config   // reaches the API server under the agent's identity; Boot needs none
	Place         place.Findings // what is wrong with the agent's directories
	Sync          statefile.Sync // of its files
	Resync        time.Duration  // how often the kernel is looked at without a hint; 15 s unless set
	DeliveryPoll  time.Duration  // how often an awaited carrier is looked at, at first; 250 ms unless set
	// Jitter makes a time longer by a random part of it, at most by a factor; wait.Jitter unless set.
	Jitter func(d time.Duration, factor float64) time.Duration
}

// Agent makes one node's kernel match its NodeModulesConfig.
type Agent struct {
	o       Options
	api     *api
	latest  *latest
	memory  *execute.Memory
	awaited map[types.UID]time.Time // carriers that have not delivered, since when
	still   *stillness              // nil: there may be something to do
	started time.Time

	record           *recorder
	recorded         *record // what the record said at start; nil: nothing to work from
	foreign          error   // why the record was moved aside, until no order waits for that
	foreignPublished bool
	// unrecorded is why the orders of now could not be recorded, or nil.
	unrecorded error
	// old are the orders that the API server has newer ones for, as the answer to a write said: the
	// watch is yet to bring them.
	old        version
	distrusted []error   // why other files were moved aside
	cluster    types.UID // empty until known, since nameless; asked for again at askCluster
	nameless   error
	askCluster time.Time
	asked      int

	// applied is the object as the last status write left it: newer than the watch for a moment.
	applied     *v1beta1.NodeModulesConfig
	reportedTo  types.UID
	writeAfter  time.Time
	writeFailed int
}

// New checks the options and reads the state directory, moving aside what cannot be trusted.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" || o.StateDir == "" || o.Host == nil || o.Store == nil {
		return nil, errors.New("agent: NodeName, StateDir, Host and Store are required")
	}
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	o.Resync = cmp.Or(o.Resync, 15*time.Second)
	o.DeliveryPoll = cmp.Or(o.DeliveryPoll, 250*time.Millisecond)
	if o.Jitter == nil {
		o.Jitter = wait.Jitter
	}
	if err := statefile.MakeDir(o.StateDir); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{o: o, latest: newLatest(), record: &recorder{dir: o.StateDir, sync: o.Sync}, awaited: map[types.UID]time.Time{}}
	if err := a.remember(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if o.Config == nil {
		return a, nil
	}
	var err error
	if a.api, err = newAPI(o.Config, o.NodeName); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

func (a *Agent) remember() error {
	done, errJournal := journal.Read(a.o.StateDir, a.o.NodeName, a.o.Sync)
	retried, errRetried := journal.ReadRetried(a.o.StateDir, a.o.Sync)
	a.memory = execute.NewMemory(done, retried)
	for _, err := range []error{errJournal, errRetried} {
		if untrusted(err) {
			a.distrusted = append(a.distrusted, err)
		} else if err != nil {
			return err
		}
	}
	var err error
	if a.recorded, err = readRecord(a.o.StateDir, a.o.NodeName); untrusted(err) {
		a.foreign, err = err, nil
	}
	if a.recorded != nil {
		a.record.last, err = statefile.Encode(recordSchema, *a.recorded)
	}
	return err
}

func untrusted(err error) bool { return errors.As(err, new(*statefile.UntrustedError)) }

func (a *Agent) logDistrusted(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for _, err := range a.distrusted {
		logger.Error(err, "What the agent noted is lost; the kernel and the last status say the rest")
	}
	a.distrusted = nil
	if a.foreign != nil {
		logger.Error(a.foreign, "The record is not worked from", "reason", v1beta1.ReasonRecordForeign)
	}
}

// Run works until ctx ends, finishing the step it is in. It fails only when it cannot work at all.
func (a *Agent) Run(ctx context.Context) error {
	if a.api == nil {
		return errors.New("agent: without a Config there is only Boot")
	}
	logger := klog.FromContext(ctx).WithValues("node", a.o.NodeName)
	ctx = klog.NewContext(ctx, logger)
	a.logDistrusted(ctx)
	changes, err := a.o.Host.Changes(ctx)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	a.started = a.o.Clock.Now()
	done := make(chan struct{})
	defer func() { <-done }()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(done)
		a.api.watch(watching, a.latest)
	}()
	timer := a.o.Clock.NewTimer(0)
	defer timer.Stop()
	defer a.o.Watchdog.Rest()
	for {
		a.o.Watchdog.Rest()
		select {
		case <-ctx.Done():
			return a.stop()
		case <-a.latest.changed:
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
		case <-timer.C():
			a.o.Watchdog.Step("a glance at the kernel's modules")
			if a.undisturbed() {
				timer.Reset(a.glance())
				continue
			}
		}
		a.o.Watchdog.Step("the begin of a pass")
		next, err := a.look(ctx)
		if err != nil {
			logger.Error(err, "Cannot look after the node")
			next = brokenPause
		}
		timer.Reset(next)
	}
}

// stop notes that the end is no crash: an orderly reboot may follow.
func (a *Agent) stop() error {
	if a.o.Fuse == nil {
		return nil
	}
	if err := a.o.Fuse.Stop(a.o.Clock.Now()); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// look is one round. It returns when to look again without a hint.
func (a *Agent) look(ctx context.Context) (time.Duration, error) {
	object, listed := a.latest.get()
	resync := a.resync()
	switch {
	case listed && object == nil:
		// Now, so that the first order need not wait for it.
		a.identify(ctx)
		return resync, nil // no object is no order: keep what is loaded
	case listed:
		spec, current := a.takeBack(ctx, object)
		if !current {
			return resync, nil
		}
		err := a.accept(ctx, spec)
		if err != nil && a.unrecorded == nil {
			klog.FromContext(ctx).Error(err, "What cannot be recorded is not carried out")
		}
		a.unrecorded = err
		return a.work(ctx, spec, object)
	}
	if left := a.started.Add(answerGrace).Sub(a.o.Clock.Now()); left > 0 {
		return left, nil
	}
	if a.recorded == nil || a.recordIsForeign(ctx) {
		return resync, nil
	}
	return a.work(ctx, a.recorded.Spec, nil)
}

// work settles the orders and, when the object is known, reports.
func (a *Agent) work(ctx context.Context, spec v1beta1.NodeModulesConfigSpec, object *v1beta1.NodeModulesConfig) (time.Duration, error) {
	a.still = nil
	p, err := a.newPass(spec)
	if err != nil {
		return 0, err
	}
	if object != nil {
		p.said = a.lastStatus(object)
		if err := p.exec.Restore(p.said); err != nil {
			return 0, err
		}
		if err := a.publishForeign(ctx, p, object); err != nil {
			return 0, err
		}
	}
	outcomes, failed := p.settle(ctx)
	a.memory.Checks = p.exec.Checked
	if object != nil && failed == nil && a.foreignPublished && !p.foreignSaid {
		a.foreign = nil // no order waits any more
	}
	if object != nil && outcomes != nil && ctx.Err() == nil {
		if err := a.publish(ctx, p, object, outcomes, failed == nil); err != nil {
			return 0, errors.Join(failed, err)
		}
	}
	if failed != nil {
		return 0, failed
	}
	a.await(p)
	next := min(a.resync(), a.poll())
	for _, at := range []time.Time{p.wake, a.writeAfter} {
		if in := at.Sub(a.o.Clock.Now()); !at.IsZero() && in < next {
			next = max(in, minimalPause)
		}
	}
	a.rest(p)
	return next, nil
}

// resync is when to look at the kernel, and at what readyWhen asks for, again without a hint.
func (a *Agent) resync() time.Duration {
	return a.memory.Checks.Pause(a.o.Clock.Now(), a.o.Jitter(a.o.Resync, 0.2))
}

// glance is when to look again while nothing disturbs the rest, or ends it.
func (a *Agent) glance() time.Duration {
	return max(minimalPause, min(a.resync(), a.poll(), a.still.until.Sub(a.o.Clock.Now())))
}

// await notes the carriers that have not delivered, and since when.
func (a *Agent) await(p *pass) {
	still := map[types.UID]time.Time{}
	for carrier := range p.exec.Awaited() {
		since, ok := a.awaited[carrier]
		if !ok {
			since = a.o.Clock.Now()
		}
		still[carrier] = since
	}
	a.awaited = still
}

// poll is when to look at carriers again: after a tenth of the time already waited.
func (a *Agent) poll() time.Duration {
	const rarely = 5 * time.Second
	now, next := a.o.Clock.Now(), time.Duration(math.MaxInt64)
	for _, since := range a.awaited {
		next = min(next, max(a.o.DeliveryPoll, min(now.Sub(since)/10, rarely)))
	}
	return next
}

// identify asks which cluster this is, until it is known.
func (a *Agent) identify(ctx context.Context) {
	now := a.o.Clock.Now()
	if a.cluster != "" || now.Before(a.askCluster) {
		return
	}
	a.cluster, a.nameless = a.api.clusterUID(ctx)
	a.asked = min(a.asked+1, 4)
	a.askCluster = a.o.Clock.Now().Add(a.o.Jitter(recordAgain<<(a.asked-1), 0.2)) // at most half a minute
	if a.nameless != nil {
		klog.FromContext(ctx).Error(a.nameless, "Nothing is recorded before the cluster is known")
	}
}

// recordAgain is how soon orders that could not be recorded are tried again.
const recordAgain = 3 * time.Second

// restFor is how long a look at the names and states of modules is enough, while there is nothing
// to do. What else may change (another build under the same name, damage on disk) is seen after it.
const restFor = time.Minute

// stillness is what the kernel held when nothing was left to do but to wait.
type stillness struct {
	modules map[string]host.State
	until   time.Time
}

// rest notes what the kernel holds, and until when there is nothing to do but to look again. Where
// a time is due first, that ends it.
func (a *Agent) rest(p *pass) {
	a.still = nil
	seen := p.exec.Kernel.Seen()
	if seen == nil {
		return
	}
	for _, o := range p.exec.Orders {
		if o.BlacklistInTree {
			return // its file on the host is looked at each time
		}
	}
	until := a.o.Clock.Now().Add(restFor)
	for _, at := range []time.Time{p.wake, a.writeAfter} {
		if !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	a.still = &stillness{modules: maps.Clone(seen), until: until}
}

// undisturbed tells whether a look can be left out: nothing was to do, nothing has changed, and no
// carrier has delivered.
func (a *Agent) undisturbed() bool {
	if a.still == nil || !a.o.Clock.Now().Before(a.still.until) {
		return false
	}
	for carrier := range a.awaited {
		if a.o.Store.Delivered(carrier) {
			return false
		}
	}
	present, err := a.o.Host.Modules()
	return err == nil && maps.Equal(present, a.still.modules) && a.memory.Checks.Stand(a.o.Host)
}
