// SPDX-License-Identifier: Apache-2.0

// Command memory measures what the operator's caches hold for each Module on each node, in a fleet
// where every Module is live on every node. The API server is real, and so are the operator's
// manager, informers and transforms; nodes and reports are made up, as agents write them. What
// counts is the heap of this process, after a collection, with the caches against without them. All
// that is kept of Nodes, Modules and NodeModulesConfigs counts, divided by nodes and Modules.
//
// Then the operator itself starts on that fleet, tells of all Modules that they are ready, and has
// nothing else to do; the API server restarts, and the caches are filled anew: what its process
// takes at most, and which writes it makes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/bench/measure"
)

// maxBytesPerPair is what docs/reference/configuration.md reckons with.
const maxBytesPerPair = 1024

// result is the line that ends the bench.
type result struct {
	Nodes   int `json:"nodes"`
	Modules int `json:"modules"`
	// Heap in bytes, with the caches, of which BytesBefore were there without them.
	Heap         int64 `json:"heap"`
	BytesBefore  int64 `json:"bytesBefore"`
	BytesPerPair int64 `json:"bytesPerPair"`
	// QuietRSSMiB is what the operator's process took at most, in MiB, until nothing was left to do.
	QuietRSSMiB float64 `json:"quietRSSMiB"`
	// OutageSeconds passed from the API server's restart until the operator had answered two reports.
	OutageSeconds float64 `json:"outageSeconds"`
	// OperatorRSSMiB is what its process took at most, the API server's restart included, and
	// OperatorCPUSeconds its processor time.
	OperatorRSSMiB     float64 `json:"operatorRSSMiB"`
	OperatorCPUSeconds float64 `json:"operatorCPUSeconds"`
	ReadySeconds       float64 `json:"readySeconds"`
	// NodeWrites are its writes of nodes, their orders and carriers, where all is as it should be;
	// ModuleWrites are all others.
	NodeWrites   int     `json:"nodeWrites"`
	ModuleWrites int     `json:"moduleWrites"`
	Seconds      float64 `json:"seconds"`
}

func main() {
	nodes := flag.Int("nodes", 5000, "number of nodes")
	modules := flag.Int("modules", 20, "number of Modules, each live on every node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *nodes, *modules)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-memory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes, modules int) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	log.SetLogger(logr.Discard())
	// The nodes never renew a lease, and nobody is to miss that.
	f, err := fleet.Start(ctx, fleet.Options{Later: true, LeasePeriod: time.Hour, Say: say})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := write(ctx, f, nodes, modules, say); err != nil {
		return err
	}
	r := result{Nodes: nodes, Modules: modules}
	if err := r.measure(ctx, f.AdminConfig, say); err != nil {
		return err
	}
	if err := r.run(ctx, f, say); err != nil {
		return err
	}
	r.Seconds = time.Since(begin).Round(time.Second).Seconds()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return r.wrong()
}

// wrong names every bound that the result breaks.
func (r *result) wrong() error {
	var errs []error
	if r.BytesPerPair > maxBytesPerPair {
		errs = append(errs, fmt.Errorf("bytesPerPair %d is above %d", r.BytesPerPair, maxBytesPerPair))
	}
	if most := measure.MaxOperatorMiB(r.Nodes, r.Modules); r.OperatorRSSMiB > most {
		errs = append(errs, fmt.Errorf("operatorRSSMiB %.0f is above %.0f", r.OperatorRSSMiB, most))
	}
	if r.NodeWrites > 0 {
		errs = append(errs, fmt.Errorf("nodeWrites are %d although all nodes are as they should be", r.NodeWrites))
	}
	return errors.Join(errs...)
}

// measure fills the caches as the operator does.
func (r *result) measure(ctx context.Context, config *rest.Config, say func(string, ...any)) error {
	mgr, err := operator.NewManager(config, &operator.Options{MetricsAddress: "0", ProbeAddress: "0", Log: logr.Discard()})
	if err != nil {
		return fmt.Errorf("make the operator's manager: %w", err)
	}
	r.BytesBefore = heap()
	caches := mgr.GetCache()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- caches.Start(ctx) }()
	for _, kind := range []client.Object{&corev1.Node{}, &v1beta1.Module{}, &v1beta1.NodeModulesConfig{}} {
		if _, err := caches.GetInformer(ctx, kind); err != nil { // before the cache has started, it returns at once
			cancel()
			return errors.Join(fmt.Errorf("fill the cache of %T: %w", kind, err), <-ended)
		}
	}
	if !caches.WaitForCacheSync(ctx) {
		cancel()
		return errors.Join(errors.New("the caches were not filled"), <-ended)
	}
	if err := r.counted(ctx, caches); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	r.Heap = heap()
	r.BytesPerPair = (r.Heap - r.BytesBefore) / int64(r.Nodes*r.Modules)
	say("the caches hold %d MiB, %d bytes for each Module on each node", (r.Heap-r.BytesBefore)>>20, r.BytesPerPair)
	runtime.KeepAlive(caches)
	cancel()
	return <-ended
}

// counted makes sure that all is in the caches that is to be weighed.
func (r *result) counted(ctx context.Context, caches client.Reader) error {
	var configs v1beta1.NodeModulesConfigList
	if err := caches.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list what is cached: %w", err)
	}
	live := 0
	for i := range configs.Items {
		live += min(len(configs.Items[i].Status.Modules), len(configs.Items[i].Spec.Modules))
	}
	if live != r.Nodes*r.Modules {
		return fmt.Errorf("the caches have %d Modules live on nodes, not %d", live, r.Nodes*r.Modules)
	}
	return nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // bounded by the machine
}
