// SPDX-License-Identifier: Apache-2.0

// Command demo does Drover's main job on this machine: it starts an embedded control plane and
// hollow nodes on two kernels, applies the samples, and shows each node until the kernel module is
// ready everywhere.
//
// Environment: DEMO_ONCE=1 ends after Ready; DEMO_TIMEOUT (a duration, default 60s) bounds the way
// there; BREAK breaks something on purpose, so that the result must be red: agent (no node has an
// agent), image (the image does not exist), unload (somebody removes the module behind Drover's
// back, again and again).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

// Kernels of the demo's nodes.
var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

const (
	demoNodes  = 4
	namespace  = "default"
	moduleName = "drover-sample"
	kernelName = "drover_sample"
	sampleFile = "config/samples/module_sample.yaml"
)

// result is the line that ends the demo.
type result struct {
	Nodes       int     `json:"nodes"`
	NodesReady  int     `json:"nodesReady"`
	Kernels     int     `json:"kernels"`
	ModuleReady bool    `json:"moduleReady"`
	Seconds     float64 `json:"seconds"`
	Break       string  `json:"break,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	begin = time.Now() // what has to be built is built
	f, err := fleet.Start(ctx, options(os.Getenv("BREAK"), say))
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := f.Stop(); err == nil {
			err = stopErr
		}
	}()
	say("applying %s", sampleFile)
	if _, err := f.Kubectl(ctx, "apply", "--server-side", "--validate=strict", "-f", sampleFile); err != nil {
		return err
	}
	timeout, err := timeout()
	if err != nil {
		return err
	}
	last, reached := watch(ctx, f, newScreen(os.Stdout, term.IsTerminal(int(os.Stdout.Fd()))), begin.Add(timeout), os.Getenv("BREAK"))
	if ctx.Err() != nil {
		return nil // Ctrl-C on the way is no failure
	}
	if err := report(last, time.Since(begin), reached); err != nil {
		return err
	}
	if os.Getenv("DEMO_ONCE") == "" {
		stay(ctx, f)
	}
	return nil
}

func options(fault string, say func(string, ...any)) fleet.Options {
	o := fleet.Options{
		Nodes: demoNodes, Kernels: kernels, Say: say,
		NodeLabels: map[string]string{"drover.dev/sample-device": "true"},
	}
	switch fault {
	case "agent":
		o.Faults = []string{"agent-off"}
	case "image":
		o.ImagePattern = "^no-such-registry/"
	}
	return o
}

func timeout() (time.Duration, error) {
	text := os.Getenv("DEMO_TIMEOUT")
	if text == "" {
		return 60 * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("DEMO_TIMEOUT: %w", err)
	}
	return d, nil
}

// report prints the RESULT line and returns an error when something in it is false.
func report(v view, took time.Duration, reached bool) error {
	r := result{
		Nodes: len(v.nodes), NodesReady: v.nodesReady(), Kernels: v.kernels(), ModuleReady: v.moduleReady,
		Seconds: took.Round(100 * time.Millisecond).Seconds(), Break: os.Getenv("BREAK"),
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if !reached || r.Nodes < 3 || r.NodesReady != r.Nodes || r.Kernels != len(kernels) || !r.ModuleReady {
		return fmt.Errorf("the Module did not become ready on every node: %s", v.message)
	}
	return nil
}

// stay keeps the cluster up until Ctrl-C and says how to look closer.
func stay(ctx context.Context, f *fleet.Fleet) {
	fmt.Printf(`
The cluster stays up until Ctrl-C. Look closer in another terminal:

  export KUBECONFIG=%s
  export PATH=$PATH:%s          # a kubectl, if you have none
  kubectl get modules -A
  kubectl get nmc                                  # one object per node: wanted and live
  kubectl get nodes -L %s
  kubectl delete module -n %s %s       # and out of every kernel it goes

Logs: %s/operator.log, %s/hollow.log
`, f.Cluster.Kubeconfig, filepath.Dir(f.Binary("kubectl")), readyLabel, namespace, moduleName, f.Dir(), f.Dir())
	<-ctx.Done()
	fmt.Println("\nstopping")
}
