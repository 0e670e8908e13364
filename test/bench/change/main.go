// SPDX-License-Identifier: Apache-2.0

// Command change measures what a Module's upgrade, or its deletion, takes on many hollow nodes:
// until every node has the new version and its device plugin is ready again, or until nothing of
// the Module is left. A floor follows in the same run: Drover puts back what was there before, then
// a bare client sends what Drover sent for each node, as the watches show that it is time. Both
// windows begin with the same change, by the bench.
//
// BREAK=agent has agents end before the change, so that the result must be red.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/bench/measure"
)

const (
	// concurrency of the operator's writes and of the floor's.
	concurrency = 32
	// kcmQPS of kube-controller-manager; its default of 20 would limit the DaemonSet's pods and so
	// hide everything else.
	kcmQPS = 500
	// maxRatio of Drover's time to the floor's.
	maxRatio = 1.5
)

var (
	kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}
	module  = types.NamespacedName{Namespace: "default", Name: "drover-sample"}
)

const (
	kernelName = "drover_sample"
	pluginName = "drover-sample-device-plugin"
	sampleFile = "config/samples/module_sample.yaml"
)

// result is the line that ends the bench.
type result struct {
	Change             string  `json:"change"`
	Nodes              int     `json:"nodes"`
	Seconds            float64 `json:"seconds"`
	FloorSeconds       float64 `json:"floorSeconds"`
	RatioToFloor       float64 `json:"ratioToFloor"`
	WritesPerNode      float64 `json:"writesPerNode"`
	FloorWritesPerNode float64 `json:"floorWritesPerNode"`
	// ModuleWrites are our writes of anything but pods, Nodes and NodeModulesConfigs.
	ModuleWrites int `json:"moduleWrites"`
	// Unloads that every kernel did once, as the change asks, or more.
	Unloads int            `json:"unloads"`
	Use     measure.Use    `json:"use"`
	Floor   measure.Use    `json:"floor"`
	Writes  map[string]int `json:"writes"`
}

// wrong names every bound that the result breaks.
func (r *result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Seconds > 0 && r.FloorSeconds > 0, "not all was measured")
	check(r.RatioToFloor <= maxRatio, "ratioToFloor %.2f is above %.1f", r.RatioToFloor, maxRatio)
	check(r.WritesPerNode <= r.FloorWritesPerNode+1, "writesPerNode %.2f are more than the protocol's %.2f and one", r.WritesPerNode,
		r.FloorWritesPerNode)
	check(r.Unloads == r.Nodes, "%d unloads of %d kernels", r.Unloads, r.Nodes)
	return errors.Join(errs...)
}

func main() {
	nodes := flag.Int("nodes", 500, "number of hollow nodes")
	change := flag.String("change", "upgrade", "what is measured: upgrade or delete")
	timeout := flag.Duration("timeout", 5*time.Minute, "how long each phase may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *change, *nodes, *timeout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-%s: %v\n", *change, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, nodes int, timeout time.Duration) (err error) {
	c, ok := changes[name]
	if !ok {
		return fmt.Errorf("--change is %q: give upgrade or delete", name)
	}
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	begin = time.Now() // what has to be built is built
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: nodes, Kernels: kernels, ControllerQPS: kcmQPS, Say: say, KeepRequests: true, InMemory: true,
		NodeLabels: map[string]string{"drover.dev/sample-device": "true"}, OperatorArgs: []string{fmt.Sprintf("--parallelism=%d", concurrency)},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	rig, err := measure.New(f, nodes, timeout, say)
	if err != nil {
		return err
	}
	b := &bench{Rig: rig, change: c, result: result{Change: name, Nodes: nodes}}
	measured := b.measure(ctx)
	line, err := json.Marshal(b.result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(measured, b.result.wrong())
}
