// SPDX-License-Identifier: Apache-2.0

package agent

import (
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
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	// answerGrace is how long the API server may take to answer at start until the record is used.
	answerGrace = 2 * time.Second
	// brokenPause is how long the agent waits after its own means failed.
	brokenPause = 5 * time.Second
	// minimalPause is between two looks, whatever was to be done at once.
	minimalPause = time.Millisecond
)

// Options are everything an Agent needs from outside.
type Options struct {
	// NodeName is the node's name, and so its NodeModulesConfig's.
	NodeName string
	// StateDir is a directory of the agent's own that survives reboots: record and journal. It is made if missing.
	StateDir string
	// Config reaches the API server under the agent's identity. QPS limits are switched off on a copy. Boot needs none.
	Config *rest.Config
	// Host is the node.
	Host host.Host
	// Store holds deliveries.
	Store Store
	// Firmware stages firmware; without it, orders with firmware are refused.
	Firmware Firmware
	// Blacklist keeps the host from loading what orders replace; without it, orders that ask for that say so.
	Blacklist Blacklist
	// Modprobe runs kmod's modprobe; without it, orders with arguments for it are refused.
	Modprobe Modprobe
	// Fuse remembers builds that may have taken the node down; without it, they are loaded at every boot.
	Fuse *fuse.Fuse
	// Place is what is wrong with the directories that the agent was given.
	Place place.Findings
	// Clock is the real one unless set.
	Clock clock.WithTicker
	// NoSync leaves it to the operating system when files reach the disk. For nodes that are thrown away.
	NoSync bool
	// Resync is how often the kernel is looked at without a hint. Default 15 s.
	Resync time.Duration
	// DeliveryPoll is how often a carrier that is awaited is looked at, at first; one that takes long is looked at ever
	// more rarely, down to every 5 s. Default 250 ms.
	DeliveryPoll time.Duration
}

// Agent makes one node's kernel match its NodeModulesConfig.
type Agent struct {
	o       Options
	api     *api
	want    *want
	journal *journal
	retries map[task]*retry
	obeyed  *obeyed
	known   map[task]knownPlan
	judged  string               // the boot that the fuse was told of
	tidied  bool                 // firmware that nobody asks for any more has been removed since the start
	awaited map[string]time.Time // carriers that have not delivered, since when
	watched map[key]watched      // what the checks of readyWhen said
	// nextRefused are deliveries ahead of an order that could not be used.
	nextRefused map[key]nextRefused

	record     *recorder
	recorded   *record   // what the record said at start; nil: nothing to work from
	foreign    error     // why a record was moved aside, until that is reported
	told       bool      // that it was moved aside has been reported
	untrusted  []error   // other files that were moved aside
	cluster    types.UID // empty until known; asked for again at askCluster
	askCluster time.Time
	started    time.Time

	// applied is the object as the last status write left it: newer than the watch for a moment.
	applied     *v1beta1.NodeModulesConfig
	reportedTo  types.UID
	writeAfter  time.Time
	still       *stillness // nil: there may be something to do
	writeFailed int
}

// New checks the options and reads what the state directory remembers. What it holds and cannot be trusted is moved aside.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" || o.StateDir == "" || o.Host == nil || o.Store == nil {
		return nil, errors.New("agent: NodeName, StateDir, Host and Store are required")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Resync <= 0 {
		o.Resync = 15 * time.Second
	}
	if o.DeliveryPoll <= 0 {
		o.DeliveryPoll = 250 * time.Millisecond
	}
	if err := statefile.MakeDir(o.StateDir); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{
		o: o, want: newWant(), retries: map[task]*retry{}, known: map[task]knownPlan{}, record: &recorder{dir: o.StateDir, durable: !o.NoSync},
		awaited: map[string]time.Time{}, nextRefused: map[key]nextRefused{},
	}
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

// remember reads the state directory.
func (a *Agent) remember() error {
	var errs [3]error
	a.journal, errs[0] = readJournal(a.o.StateDir)
	a.obeyed, errs[1] = readObeyed(a.o.StateDir)
	a.recorded, errs[2] = readRecord(a.o.StateDir, a.o.NodeName)
	for i, err := range errs {
		var untrusted *statefile.UntrustedError
		switch {
		case err == nil:
		case !errors.As(err, &untrusted):
			return err
		case i == 2:
			a.foreign = err
		default:
			a.untrusted = append(a.untrusted, err)
		}
	}
	return nil
}

// confess logs what was moved aside.
func (a *Agent) confess(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for _, err := range a.untrusted {
		logger.Error(err, "What the agent noted is lost; the kernel and the last status say the rest")
	}
	a.untrusted = nil
	if a.foreign != nil {
		logger.Error(a.foreign, "The record is not worked from", "reason", v1beta1.ReasonRecordForeign)
	}
}

// Run works until ctx ends, finishing the step it is in. It returns an error only when it cannot work at all.
func (a *Agent) Run(ctx context.Context) error {
	if a.api == nil {
		return errors.New("agent: without a Config there is only Boot")
	}
	logger := klog.FromContext(ctx).WithValues("node", a.o.NodeName)
	ctx = klog.NewContext(ctx, logger)
	a.confess(ctx)
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
		a.api.watch(watching, a.want)
	}()
	timer := a.o.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return a.stop()
		case <-a.want.changed:
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
		case <-timer.C():
			if a.undisturbed() {
				timer.Reset(a.resync())
				continue
			}
		}
		next, err := a.look(ctx)
		if err != nil {
			logger.Error(err, "Cannot look after the node")
			next = brokenPause
		}
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
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

// look is one round: what is wanted, what is there, what has to be done, and what to report. It returns when to look
// again without a hint.
func (a *Agent) look(ctx context.Context) (time.Duration, error) {
	object, listed := a.want.get()
	resync := a.resync()
	switch {
	case listed && object == nil:
		return resync, nil // no object is no order: keep what is loaded
	case listed:
		a.accept(ctx, object)
		return a.work(ctx, object.Spec, object)
	}
	if left := a.started.Add(answerGrace).Sub(a.o.Clock.Now()); left > 0 {
		return left, nil
	}
	if a.recorded == nil {
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
		if a.reportedTo != object.UID { // what was tried on another object says nothing about this one
			a.reportedTo, a.writeAfter, a.writeFailed = object.UID, time.Time{}, 0
		}
		if err := p.restore(a.lastStatus(object)); err != nil {
			return 0, err
		}
		a.dropStaleAcks(ctx, p, object)
		if err := a.tellForeign(ctx, p, object); err != nil {
			return 0, err
		}
		p.remarked = false
	}
	outcomes, failed := p.settle(ctx)
	a.watched = p.checked
	if object != nil && failed == nil && a.told && !p.remarked {
		a.foreign = nil // no order waits any more
	}
	if object != nil && outcomes != nil && ctx.Err() == nil {
		if err := a.report(ctx, p, object, outcomes, failed == nil); err != nil {
			return 0, errors.Join(failed, err)
		}
	}
	if failed != nil {
		return 0, failed
	}
	resync := a.resync()
	next := min(resync, a.awaitCarriers(p))
	for _, at := range []time.Time{p.wake, a.writeAfter} {
		if in := at.Sub(a.o.Clock.Now()); !at.IsZero() && in < next {
			next = max(in, minimalPause)
		}
	}
	a.lieDown(p, next == resync)
	return next, nil
}

// resync is when to look at the kernel, and at what readyWhen asks for, again without a hint.
func (a *Agent) resync() time.Duration {
	next, now := wait.Jitter(a.o.Resync, 0.2), a.o.Clock.Now()
	for _, w := range a.watched {
		next = min(next, w.pause(now))
	}
	return next
}

// awaitCarriers returns when to look at carriers again: soon at first, and after a tenth of the time already waited.
func (a *Agent) awaitCarriers(p *pass) time.Duration {
	const rarely = 5 * time.Second
	now, next := a.o.Clock.Now(), time.Duration(math.MaxInt64)
	still := map[string]time.Time{}
	waiting := maps.Clone(p.ahead)
	for k := range p.looked {
		waiting[p.orders[k].Delivery.CarrierUID] = true
	}
	for uid := range waiting {
		carrier := string(uid)
		since, ok := a.awaited[carrier]
		if !ok {
			since = now
		}
		still[carrier] = since
		next = min(next, max(a.o.DeliveryPoll, min(now.Sub(since)/10, rarely)))
	}
	a.awaited = still
	return next
}

// accept records what is ordered, as soon as the cluster's identity is known.
func (a *Agent) accept(ctx context.Context, object *v1beta1.NodeModulesConfig) {
	const askAgain = 10 * time.Second
	logger := klog.FromContext(ctx)
	if now := a.o.Clock.Now(); a.cluster == "" && !now.Before(a.askCluster) {
		a.askCluster = now.Add(askAgain)
		uid, err := a.api.clusterUID(ctx)
		if err != nil {
			logger.Error(err, "Nothing is recorded before the cluster is known")
		}
		a.cluster = uid
	}
	if a.cluster == "" {
		return
	}
	if err := a.recorded.of(a.o.StateDir, a.cluster); err != nil {
		a.foreign = err
		a.confess(ctx)
	}
	a.recorded = nil // from now on the API server's word counts
	if err := a.record.write(record{ClusterUID: a.cluster, NodeName: a.o.NodeName, Spec: object.Spec}); err != nil {
		logger.Error(err, "Cannot record the orders: a boot without the API server would miss them")
	}
}
