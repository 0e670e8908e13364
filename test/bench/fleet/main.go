// SPDX-License-Identifier: Apache-2.0

// Command fleet measures Drover on many hollow nodes: how long a Module with a device plugin takes
// to be ready on all of them, how many API writes that costs, and what is written when nothing has
// to be done.
//
// The floor is measured in the same run: a bare client sends the requests that Drover sent, with
// their bodies and under the same identities, and keeps the watches that the protocol takes. Before
// both windows nobody writes for as long, and both are told with each program's CPU seconds.
//
// Several numbers of nodes, and of Modules, are measured one after the other, each on a fresh
// control plane, and compared in a table: what a node costs the operator must not grow with their
// number.
//
// Then each node in turn reports something new of the Module, and the operator's own metrics say
// how many passes that costs.
//
// All writes are counted in the API server's audit log by user agent; the truth about kernels is
// asked from the fake kernels. BREAK breaks something on purpose, so that the result must be red:
// agent (no node has an agent), unload (somebody removes the module behind Drover's back).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/bench/measure"
)

// concurrency of the operator's writes and of the floor's.
const concurrency = 32

// kcmQPS of kube-controller-manager; its default of 20 would limit the DaemonSet's pods and so hide
// everything else.
const kcmQPS = 500

// beats of all nodes in a second, of which each is a write. Real kubelets beat every ten seconds:
// those of 5,000 nodes would leave little of a machine with two cores for what is measured.
const beats = 100

// leasePeriod is a kubelet's, but for large fleets.
func leasePeriod(nodes int) time.Duration {
	return max(10*time.Second, time.Duration(nodes/beats)*time.Second)
}

// maxRatio of Drover's time to the floor's. Small fleets have the larger ratios: what a Module
// costs once counts for more.
const maxRatio = 2.0

var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// result is the line that ends the bench.
type result struct {
	Nodes              int     `json:"nodes"`
	Modules            int     `json:"modules"`
	Seconds            float64 `json:"seconds"`
	ModuleReadySeconds float64 `json:"moduleReadySeconds"`
	KCMQPS             int     `json:"kcmQPS"`
	FloorSeconds       float64 `json:"floorSeconds"`
	RatioToFloor       float64 `json:"ratioToFloor"`
	// WritesPerNode are our writes of pods, Nodes and NodeModulesConfigs, ModuleWrites all others of
	// the load.
	WritesPerNode      float64     `json:"writesPerNode"`
	ModuleWrites       int         `json:"moduleWrites"`
	Carriers           int         `json:"carriers"`
	PluginPodsReady    int         `json:"pluginPodsReady"`
	FloorWritesPerNode float64     `json:"floorWritesPerNode"`
	Load               measure.Use `json:"load"`
	Floor              measure.Use `json:"floor"`
	// Steps say where a node's seconds go. ReactionP99Seconds is from its report to its label, and
	// FloorReactionP99Seconds the same where a bare client sends both.
	Steps                   []spread `json:"steps"`
	ReactionP99Seconds      float64  `json:"reactionP99Seconds"`
	FloorReactionP99Seconds float64  `json:"floorReactionP99Seconds"`
	EventWrites             int      `json:"eventWrites"`
	NoopWrites              int      `json:"noopWrites"`
	RestartWrites           int      `json:"restartWrites"`
	CordonWrites            int      `json:"cordonWrites"`
	UnaskedUnloads          int      `json:"unaskedUnloads"`
	Reports                 int      `json:"reports"`
	PassesPerReport         float64  `json:"passesPerReport"`
	OperatorCPUSeconds      float64  `json:"operatorCPUSeconds"`
	OperatorRSSMiB          float64  `json:"operatorRSSMiB"`
	// EtcdMiB is the size of etcd's database when the fleet is ready, with what is not compacted yet.
	EtcdMiB          float64        `json:"etcdMiB"`
	OperatorLogLines int            `json:"operatorLogLines"`
	Writes           map[string]int `json:"writes"`
}

// wrong names every bound that the result breaks.
func (r result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Seconds > 0, "not every node became ready")
	// A device plugin's label is the sixth write.
	most := float64(max(6, 5*r.Modules))
	check(r.WritesPerNode <= most, "writesPerNode %.3f is above %.0f", r.WritesPerNode, most)
	check(r.ModuleWrites <= maxModuleWrites*r.Modules, "moduleWrites %d is above %d", r.ModuleWrites, maxModuleWrites*r.Modules)
	mostMiB := measure.MaxOperatorMiB(r.Nodes, r.Modules)
	check(r.OperatorRSSMiB <= mostMiB, "operatorRSSMiB %.0f is above %.0f", r.OperatorRSSMiB, mostMiB)
	if r.Modules > 1 {
		return errors.Join(errs...)
	}
	check(r.FloorSeconds > 0, "the floor was not measured")
	check(r.RatioToFloor <= maxRatio, "ratioToFloor %.2f is above %.1f", r.RatioToFloor, maxRatio)
	check(r.Carriers == r.Nodes, "carriers %d is not the number of nodes", r.Carriers)
	check(r.PluginPodsReady == r.Nodes, "pluginPodsReady %d is not the number of nodes", r.PluginPodsReady)
	check(r.EventWrites+r.NoopWrites+r.RestartWrites+r.CordonWrites == 0, "writes although nothing had to be done")
	check(r.UnaskedUnloads == 0, "%d unloads that nobody asked for", r.UnaskedUnloads)
	check(r.Reports > 0 && r.PassesPerReport <= maxPassesPerReport, "passesPerReport %.3f is above %.2f", r.PassesPerReport,
		maxPassesPerReport)
	// CPU and log bounds are stated for 500 nodes.
	scale := max(1, float64(r.Nodes)/500)
	check(r.OperatorCPUSeconds <= 15*scale, "operatorCPUSeconds %.1f is above %.0f", r.OperatorCPUSeconds, 15*scale)
	check(float64(r.OperatorLogLines) <= 1000*scale, "operatorLogLines %d is above %.0f", r.OperatorLogLines, 1000*scale)
	return errors.Join(errs...)
}

func main() {
	nodes := flag.String("nodes", "500", "number of hollow nodes, or several, such as 500,2000,5000")
	modules := flag.String("modules", "1", "number of Modules, or several, such as 1,5,20: each number with each of nodes")
	timeout := flag.Duration("timeout", 0, "how long the fleet may take to be ready (default: 5m, or two seconds for a Module on 5 nodes)")
	svg := flag.String("svg", "", "file for charts of what grows with the number of nodes, where there are several")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sizes, err := parseSizes(*nodes, *modules)
	if err == nil {
		err = run(ctx, sizes, *timeout, *svg)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sizes []size, timeout time.Duration, svg string) error {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	var results []result
	var errs []error
	for _, s := range sizes {
		begin = time.Now() // what has to be built is built
		r, err := measureSize(ctx, s, cmp.Or(timeout, max(5*time.Minute, time.Duration(s.nodes*s.modules)*2*time.Second/5)), say)
		if err == nil {
			err = r.wrong()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
		}
		results = append(results, r)
		if len(sizes) > 1 { // large sizes take long, and what is measured is not to be lost
			errs = append(errs, printResult("MEASURED", r))
		}
	}
	if len(results) == 1 {
		return errors.Join(append(errs, printResult("RESULT", results[0]))...)
	}
	g := compare(results)
	if svg != "" {
		errs = append(errs, g.saveChart(svg))
	}
	return errors.Join(append(errs, g.print(os.Stdout), printResult("RESULT", g), g.wrong())...)
}

// printResult prints a word and a value as JSON in one line.
func printResult(word string, of any) error {
	line, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("%s %s\n", word, line)
	return nil
}

// measureSize measures a fleet on a control plane of its own.
func measureSize(ctx context.Context, s size, timeout time.Duration, say func(string, ...any)) (r result, err error) {
	metrics, err := fleet.FreeAddress()
	if err != nil {
		return r, err
	}
	o := fleet.Options{
		Nodes: s.nodes, Kernels: kernels, ControllerQPS: kcmQPS, Say: say, KeepRequests: true, InMemory: true,
		NodeLabels:  map[string]string{"drover.dev/sample-device": "true"},
		LeasePeriod: leasePeriod(s.nodes),
		// As the default install, whose operator also examines images.
		OperatorArgs: []string{
			fmt.Sprintf("--parallelism=%d", concurrency), "--metrics-bind-address=" + metrics, "--metrics-secure=false",
			"--examiner-image=registry.invalid/drover/drover-operator:dev",
		},
	}
	if os.Getenv("BREAK") == "agent" {
		o.Faults = []string{"agent-off"}
	}
	f, err := fleet.Start(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	rig, err := measure.New(f, s.nodes, timeout, say)
	if err != nil {
		return r, err
	}
	b := &bench{Rig: rig, metrics: metrics, result: result{Nodes: s.nodes, Modules: s.modules, KCMQPS: kcmQPS}}
	err = b.measure(ctx)
	return b.result, err
}
