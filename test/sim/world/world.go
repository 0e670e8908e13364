// SPDX-License-Identifier: Apache-2.0

// Package world is a cluster in one goroutine: the API server in memory, an operator, three nodes
// with the real agent over fake kernels, and what stands in for kubelets. Nothing happens but what
// [World.Do] is told, so that a seed gives the same history on every machine.
package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/test/sim/cluster"
	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/limits"
	"github.com/drover-project/drover/test/sim/manager"
	"github.com/drover-project/drover/test/sim/memetcd"
	"github.com/drover-project/drover/test/sim/process"
	"github.com/drover-project/drover/test/sim/states"
	"github.com/drover-project/drover/test/sim/taints"
)

const (
	release   = "6.1.0-1-test"
	namespace = "tenant"
	nodes     = 3
	testLabel = "test"
)

// epoch is when every history begins.
var epoch = time.Date(2001, time.January, 1, 0, 0, 0, 0, time.UTC)

// Server is the API server that histories share, one after the other.
type Server struct {
	// Without names promises that are not looked at.
	Without map[string]bool

	cluster  *cluster.Cluster
	clock    *clocktesting.FakeClock
	operator http.RoundTripper
	kept     map[string]bool // the keys of a new cluster
	before   int64           // the revision at which the history before this one began
}

// NewServer starts an API server; root is the repository's folder. It takes a second or two.
func NewServer(ctx context.Context, root string) (*Server, error) {
	s := &Server{clock: clocktesting.NewFakeClock(epoch), kept: map[string]bool{}}
	var err error
	if s.cluster, err = cluster.New(ctx, root, s.clock.Now); err != nil {
		return nil, err
	}
	s.operator = s.cluster.API.As(&user.DefaultInfo{Name: "system:serviceaccount:drover-system:drover-operator",
		Groups: []string{user.AllAuthenticated}})
	// One for all histories: admission learns of new ones late.
	if err := s.cluster.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: named(namespace)}); err != nil {
		return nil, err
	}
	all, _ := s.cluster.API.Etcd().All("/")
	for i := range all {
		s.kept[all[i].Key] = true
	}
	return s, nil
}

// reset leaves what a new cluster has.
func (s *Server) reset() {
	etcd := s.cluster.API.Etcd()
	etcd.Delete(func(key string) bool { return !s.kept[key] })
	s.cluster.Forget()
	// What watches the server may still be reading the last history's changes.
	etcd.Compact(s.before)
	s.before = etcd.Revision()
}

// World is one cluster and its history.
type World struct {
	// Trace is told what happens, a line each.
	Trace func(format string, args ...any)
	// Seen are the states that nodes have been in, and after how many events of the history first; 0:
	// at its end.
	Seen map[states.State]int
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
	// manager is the cluster's own.
	manager *manager.Manager
	nodes   []*machine
	fault   Fault
	// meanwhile is what happens between two requests of the operator's next pass; nil: nothing.
	meanwhile *meanwhile
	// during is what happens between two requests of an agent's next round; nil: nothing.
	during *meanwhile
	// last is what happens when all has come to rest; nil: nothing.
	last *history.Event
	// actor is who acts: a controller's name, a node's, a person.
	actor   string
	audited int64 // the revision up to which writes were judged
	limits  limits.Shared
	begin   int64 // the revision at which the history began
	found   *Violation
	calm    []string // writes since a count of them began; nil: they are not counted
	judge   judge
}

// New is a cluster with three nodes and no Module. dir is for the nodes' files; the world removes
// it at its end.
func (s *Server) New(dir string) (*World, error) {
	s.reset()
	// UIDs and jitter are of one seed; what happens is of the history's.
	uuid.SetRand(rand.NewChaCha8([32]byte{42}))
	s.clock.SetTime(epoch)
	w := &World{server: s, dir: dir, Trace: func(string, ...any) {}, clock: s.clock,
		chance: rand.New(rand.NewPCG(42, 1)), etcd: s.cluster.API.Etcd(), admin: s.cluster.Admin, Seen: map[states.State]int{},
		manager: &manager.Manager{Cluster: s.cluster, Clock: s.clock}}
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

// get reads an object as it is now; false: there is none.
func (w *World) get(o client.Object, key client.ObjectKey) bool { return w.server.cluster.Get(o, key) }

func (w *World) jitter(d time.Duration, factor float64) time.Duration {
	return d + time.Duration(w.chance.Float64()*factor*float64(d))
}

// flags are the operator's. Of KMM, and of others' definitions, for which the guard looks each
// minute, there are none here.
var flags = []string{"--agent-image=" + agentImage, "--parallelism=1", "--node-condition", "--controllers=*,-guard",
	"--unload-taints=" + taints.Upgrade}

const agentImage = "registry.invalid/drover/drover-agent:dev"

// startOperator starts a new process of the operator.
func (w *World) startOperator() error {
	if w.op != nil {
		w.op.Stop()
	}
	caches, err := operator.CacheOptions(false, false)
	if err != nil {
		return err
	}
	w.limits.Restarted(w.Now())
	options, err := operator.ParseFlags(append(w.limits.Flags(), flags...))
	if err != nil {
		return err
	}
	options.Clock = skewed{w.clock, &w.ahead}
	options.Orders.CarrierUser = ptr.To[int64](65532)
	w.op, err = process.New(w.ctx, process.Options{API: w.server.cluster.API, Transport: faulty{w, w.server.operator},
		Scheme: cluster.Scheme, Mapper: cluster.Mapper, Cache: caches, Clock: w.clock}, func(p *process.Process) error {
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
	f.w.interrupt(&f.w.meanwhile)
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
	config := m.w.server.cluster.API.Config(agentUser(m.name))
	config.Transport = witnessed{m, config.Transport}
	return config
}

func (w witnessed) RoundTrip(r *http.Request) (*http.Response, error) {
	w.m.w.judge.kernel(w.m)
	w.m.w.interrupt(&w.m.w.during)
	answer, err := w.next.RoundTrip(r)
	if r.Method != http.MethodGet {
		w.m.w.judge.writes()
	}
	return answer, err
}

// refusal is an answer that the API server did not give.
func refusal(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "the simulation refuses"}) //nolint:gosec // an HTTP status
	must(err)
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// subject is a Module that histories have, of its kernel module's name.
type subject struct{ name string }

// subjects are the Modules of histories. A history begins with the first alone.
var (
	nic      = subject{images.Names[0]}
	aux      = subject{images.Names[1]}
	subjects = []subject{nic, aux}
)

func (s subject) key() string { return namespace + "/" + s.name }

// image is the Module's image of a number.
func (s subject) image(a uint8) string { return images.Of(s.name, a) }

// pluginImage is the image of the Module's device plugin of a number.
func (s subject) pluginImage(a uint8) string {
	return fmt.Sprintf("registry.example/%s-plugin:%d", s.name, a%images.Each)
}

// concerns says whether a write may be about the Module: orders, status and labels of a node are
// about all.
func (s subject) concerns(r *write) bool {
	switch r.kind {
	case kindModule:
		return r.key == s.key()
	case kindPod:
		pod, before, _ := both[*corev1.Pod](r)
		if pod == nil {
			pod = before
		}
		return s.isPlugin(pod) || s == nic && kubelet.IsUser(pod) || pod != nil && images.Module(kubelet.Carries(pod)) == s.name
	case kindSet:
		ds, before, _ := both[*appsv1.DaemonSet](r)
		if ds == nil {
			ds = before
		}
		return ds != nil && ds.Labels[v1beta1.ModuleNameLabel] == s.name
	}
	return true
}

// orderOf is the Module's order among those of a node; nil: there is none.
func (s subject) orderOf(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleSpec {
	if n == nil {
		return nil
	}
	return of(s, n.Spec.Modules, func(o *v1beta1.NodeModuleSpec) string { return o.Name })
}

// attemptOf is what a node's agent says of the order; nil: nothing.
func (s subject) attemptOf(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleAttempt {
	if n == nil {
		return nil
	}
	return of(s, n.Status.Attempts, func(a *v1beta1.NodeModuleAttempt) string { return a.Name })
}

// liveIn is what a node's agent says to be live; nil: nothing.
func (s subject) liveIn(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleStatus {
	if n == nil {
		return nil
	}
	return of(s, n.Status.Modules, func(m *v1beta1.NodeModuleStatus) string { return m.Name })
}

// has says whether a node's agent says that what an order names is live, for the same kernel.
func (s subject) has(n *v1beta1.NodeModulesConfig, o *v1beta1.NodeModuleSpec) bool {
	live := s.liveIn(n)
	return live != nil && live.Config != nil && live.Config.ContainerImage == o.Config.ContainerImage &&
		live.Config.KernelVersion == o.Config.KernelVersion
}

// usable says whether a node's agent says that a build is live in the node's boot, and passes its
// checks.
func (s subject) usable(n *v1beta1.NodeModulesConfig, node *corev1.Node) bool {
	live := s.liveIn(n)
	return live != nil && node != nil && live.BootID == node.Status.NodeInfo.BootID && (live.Observed == nil || !live.Observed.Unusable)
}

// of is the element of the Module's name.
func of[T any](s subject, all []T, name func(*T) string) *T {
	for i := range all {
		if name(&all[i]) == s.name {
			return &all[i]
		}
	}
	return nil
}

// servedElsewhere says whether a node may have been seen with a build: a new one gets it while the
// rollout stands still (docs/design/0013-rollout.md, 2).
func (j *trial) servedElsewhere(image string) bool {
	return slices.ContainsFunc(j.w.nodes, func(m *machine) bool {
		return slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name), func(n *v1beta1.NodeModulesConfig) bool {
			live := j.liveIn(n)
			return live != nil && live.Config != nil && live.Config.ContainerImage == image
		})
	})
}
