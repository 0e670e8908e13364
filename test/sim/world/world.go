// SPDX-License-Identifier: Apache-2.0

// Package world is a cluster in one goroutine: the API server in memory, an operator, three nodes
// with the real agent over fake kernels, and what stands in for kubelets. Nothing happens but what
// [World.Do] is told, so that a seed gives the same history on every machine.
package world

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/test/sim/disk"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/memetcd"
	"github.com/drover-project/drover/test/sim/process"
)

const (
	release   = "6.1.0-1-test"
	namespace = "tenant"
	nodes     = 3
	testLabel = "test"
)

// epoch is when every history begins.
var epoch = time.Date(2001, time.January, 1, 0, 0, 0, 0, time.UTC)

// World is one cluster and its history.
type World struct {
	// Trace is told what happens, a line each.
	Trace func(format string, args ...any)
	// Steps counts passes, looks and events that reached a cache.
	Steps int

	server  *Server
	dir     string
	ctx     context.Context //nolint:containedctx // of the history
	cancel  context.CancelFunc
	clock   *clocktesting.FakeClock
	ahead   time.Duration // of the operator's clock, which has stepped
	stepped bool
	etcd    *memetcd.Store
	chance  *rand.Rand // of jitter
	admin   client.Client
	op      *process.Process
	nodes   []*machine
	fault   Fault
	// meanwhile is what happens between two requests of the operator's next pass; nil: nothing.
	meanwhile *meanwhile
	// actor is who acts: a controller's name, a node's, a person.
	actor   string
	audited int64 // the revision up to which writes were judged
	begin   int64 // the revision at which the history began
	found   *Violation
	// collectedAt is the revision at which the garbage collector had nothing to do.
	collectedAt int64
	calm        []string // writes since a count of them began; nil: they are not counted
	judge       judge
}

// New is a cluster with three nodes and no Module. dir is for the nodes' files; the world removes
// it at its end.
func (s *Server) New(dir string) (*World, error) {
	if err := s.reset(); err != nil {
		return nil, err
	}
	// UIDs and jitter are of one seed; what happens is of the history's.
	uuid.SetRand(rand.NewChaCha8([32]byte{42}))
	s.clock.SetTime(epoch)
	w := &World{server: s, dir: dir, Trace: func(string, ...any) {}, clock: s.clock,
		chance: rand.New(rand.NewPCG(42, 1)), etcd: s.api.Etcd(), admin: s.admin}
	w.ctx, w.cancel = context.WithCancel(klog.NewContext(ctrllog.IntoContext(context.Background(), logr.Discard()), logr.Discard()))
	w.begin = w.etcd.Revision()
	w.audited = w.begin
	w.judge = newJudge(w)
	for i := range nodes {
		m, err := w.machine(i)
		if err != nil {
			return nil, fmt.Errorf("begin a history: %w", err)
		}
		w.nodes = append(w.nodes, m)
	}
	return w, w.startOperator()
}

// Close ends the world.
func (w *World) Close() {
	w.op.Stop()
	w.cancel()
	for _, m := range w.nodes {
		m.close()
	}
	_ = os.RemoveAll(w.dir)
}

// Now is the world's time.
func (w *World) Now() time.Time { return w.clock.Now() }

func (w *World) jitter(d time.Duration, factor float64) time.Duration {
	return d + time.Duration(w.chance.Float64()*factor*float64(d))
}

// flags are the operator's. Of KMM, and of others' definitions, for which the guard looks each
// minute, there are none here.
var flags = []string{"--agent-image=" + agentImage, "--parallelism=1", "--node-condition", "--controllers=*,-guard"}

// startOperator starts a new process of the operator.
func (w *World) startOperator() error {
	if w.op != nil {
		w.op.Stop()
	}
	caches, err := operator.CacheOptions(false, false)
	if err != nil {
		return err
	}
	options, err := operator.ParseFlags(flags)
	if err != nil {
		return err
	}
	options.Clock = skewed{w.clock, &w.ahead}
	options.Orders.CarrierUser = ptr.To[int64](65532)
	w.op, err = process.New(w.ctx, process.Options{API: w.server.api, Transport: faulty{w, w.server.operator}, Scheme: scheme, Mapper: mapper,
		Cache: caches, Clock: w.clock}, func(p *process.Process) error {
		return options.SetUp(p, controller.All(p, options, controller.Shared{Gate: &gate.Gate{}, Metrics: metrics.NewBoard()}))
	})
	return err
}

// faulty has a write of the operator meet with the world's next fault.
type faulty struct {
	w    *World
	next http.RoundTripper
}

// Fault is what happens to the next write of the operator.
type Fault uint8

// The faults of a write.
const (
	NoFault  Fault = iota
	Refused        // nothing is written, and the answer is 500
	Lost           // it is written, and the answer does not come
	Conflict       // nothing is written, and the answer is 409
	TooMany        // nothing is written, and the answer is 429
	faults
)

func (f faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	f.w.interrupt()
	if r.Method == http.MethodGet || f.w.fault == NoFault {
		return f.next.RoundTrip(r)
	}
	fault := f.w.fault
	f.w.fault = NoFault
	f.w.Trace("      fault %d at %s %s", fault, r.Method, r.URL.Path)
	switch fault {
	case Lost:
		answer, err := f.next.RoundTrip(r)
		if err == nil {
			err = answer.Body.Close()
		}
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded)
	case Conflict:
		return refusal(r, http.StatusConflict, metav1.StatusReasonConflict), nil
	case TooMany:
		return refusal(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), nil
	}
	return refusal(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
}

// witnessed has each write of an agent judged when it is made, by what its kernel is then.
type witnessed struct {
	m    *machine
	next http.RoundTripper
}

// witnessed is how the node's agent reaches the API.
func (m *machine) witnessed() *rest.Config {
	config := m.w.server.api.Config(agentUser(m.name))
	config.Transport = witnessed{m, config.Transport}
	return config
}

func (w witnessed) RoundTrip(r *http.Request) (*http.Response, error) {
	w.m.w.judge.kernel(w.m)
	answer, err := w.next.RoundTrip(r)
	if r.Method != http.MethodGet {
		w.m.w.judge.writes()
	}
	return answer, err
}

// skewed is a clock that is ahead of the world's, or behind.
type skewed struct {
	*clocktesting.FakeClock
	ahead *time.Duration
}

func (s skewed) Now() time.Time                  { return s.FakeClock.Now().Add(*s.ahead) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// hasty is a clock on which what is waited for happens at once.
type hasty struct{ skewed }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	timer := h.FakeClock.NewTimer(d)
	h.Step(d)
	return timer
}

// power is a machine's mains and battery: its disk when the power goes, and its clock.
type power struct {
	disk    *disk.Disk
	left    *disk.Image // what is on the disk when the power is back; nil: it has not gone
	was     *before     // when the power went
	cuts    int         // so far
	stepped bool        // the clock has, at any time
	doom    *doom       // nil: the power stays
	ahead   time.Duration
	// seen are the orders that the agent was shown since its last kernel call, those of then first;
	// empty: it has made none.
	seen   []*v1beta1.NodeModulesConfig
	broken string // what the kernel is asked for that is not whole
}

// doom is a cut that is to come at a step of the agent's.
type doom struct {
	sync   bool // before one that syncs; else before a call of the kernel
	after  int  // so many others
	chance uint8
}

// clock is the machine's.
func (m *machine) clock() hasty { return hasty{skewed{m.w.clock, &m.ahead}} }

// setClock makes the machine's clock another. A process' own does not jump (it has a monotonic
// reading), so the agent begins anew.
func (m *machine) setClock(ahead time.Duration) {
	if m.ahead != ahead {
		m.ahead, m.stepped = ahead, true
		m.w.judge.stepped(m)
		must(m.start())
	}
}

// recover sets the machine's clock right, and boots it where a call of its kernel has not returned.
func (m *machine) recover() {
	m.setClock(0)
	states, err := m.kernel.Modules()
	must(err)
	for _, state := range states {
		if state != host.StateLive {
			m.reboot("")
			return
		}
	}
}

// setClock makes the operator's clock another. A new process of it begins.
func (w *World) setClock(ahead time.Duration) {
	if w.ahead != ahead {
		w.ahead, w.stepped = ahead, true
		must(w.startOperator())
	}
}

// sync is how the agent's files get to the disk.
func (m *machine) sync(f *os.File) error {
	m.step(true, "a sync of "+strings.TrimRight(filepath.Base(f.Name()), "0123456789")) // some names are by chance
	return m.disk.Sync(f)
}

// step is a moment at which the power may go.
func (m *machine) step(sync bool, what string) {
	switch {
	case m.doom == nil || m.doom.sync != sync:
	case m.doom.after > 0:
		m.doom.after--
	default:
		m.w.Trace("      %s: the power goes before %s", m.name, what)
		m.dark(m.doom.chance)
		panic(death{})
	}
}

// dark is when the power has gone: the kernel forgets all, and the disk what was not synced.
func (m *machine) dark(chance uint8) {
	m.doom = nil
	m.cuts++
	image, err := m.disk.Cut(rand.New(rand.NewPCG(uint64(chance), 3))) //nolint:gosec // to be repeated
	must(err)
	m.left, m.was = image, m.remember()
	m.kernel.Reboot("")
}

// light brings back what a power cut has left on the disk.
func (m *machine) light() error {
	if m.left == nil {
		return nil
	}
	clear(m.pods) // their containers begin anew
	err := m.disk.Put(m.left)
	m.left = nil
	return err
}

// anew is a new disk.
func (m *machine) anew() (err error) {
	m.left, m.doom, m.seen = nil, nil, nil
	m.disk, err = disk.New(m.dir)
	return err
}

// powerCut is one between two rounds of the agent.
func (m *machine) powerCut(chance uint8) {
	m.dark(chance)
	was := m.was
	m.booted()
	for range 2 {
		m.w.look(m)
	}
	m.w.judge.powered(m, was, func(p *Promise) func(*lit) string { return p.back })
}

// shows tells the agent of orders.
func (m *machine) shows(n *v1beta1.NodeModulesConfig) {
	if len(m.seen) > 0 {
		m.seen = append(m.seen, n)
	}
	m.agent.Show(n)
}

// powered looks at what a power cut has left, once the agent has begun.
func (m *machine) powered() {
	if m.was != nil {
		m.w.judge.powered(m, m.was, func(p *Promise) func(*lit) string { return p.lit })
	}
	m.was = nil
}

// wired is a kernel as the agent reaches it.
type wired struct {
	*fake.Host
	m *machine
}

// Load implements host.Host.
func (k wired) Load(ctx context.Context, r host.LoadRequest) error {
	content, err := io.ReadAll(r.File)
	must(err)
	if k.m.doom != nil && !k.m.doom.sync && k.m.doom.after == 0 {
		k.m.w.judge.downIn(k.m, content)
	}
	k.m.step(false, "the load of "+r.Name)
	k.m.seen = []*v1beta1.NodeModulesConfig{k.m.shown}
	if !images.Whole(content) {
		k.m.broken = fmt.Sprintf("%d bytes for %s that no image has", len(content), r.Name)
	}
	if seeker, ok := r.File.(io.Seeker); ok {
		_, err = seeker.Seek(0, io.SeekStart)
	}
	must(err)
	return k.Host.Load(ctx, r) //nolint:wrapcheck // as the kernel says it
}

// Unload implements host.Host.
func (k wired) Unload(ctx context.Context, r host.UnloadRequest) error {
	k.m.step(false, "the unload of "+r.Name)
	k.m.seen = []*v1beta1.NodeModulesConfig{k.m.shown}
	return k.Host.Unload(ctx, r) //nolint:wrapcheck // as the kernel says it
}
