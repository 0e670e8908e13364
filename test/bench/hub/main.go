// SPDX-License-Identifier: Apache-2.0

// Command hub measures a hub: what each of many clusters costs it that gets a Module, and reports
// of it. The clusters are simulated: each has a ManagedCluster that says which kernels it runs, and
// answers as a work agent does. It is done once with that many clusters and once with five times as
// many, each time with a control plane of its own; writes are counted in the audit log.
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
)

const (
	// times is how many times as many clusters the second measurement has.
	times = 5
	// maxWrites and maxRatio are the bounds of what a cluster costs.
	maxWrites, maxRatio = 3.0, 1.2
)

// result is the line that ends the bench.
type result struct {
	measured
	// More is the same with more clusters, and CostRatioPerCluster how many times as much of a
	// processor each of them took.
	More                measured `json:"more"`
	CostRatioPerCluster float64  `json:"costRatioPerCluster"`
}

// measured is a hub with some clusters.
type measured struct {
	Clusters         int     `json:"clusters"`
	ClustersApplied  int     `json:"clustersApplied"`
	ClustersReady    int     `json:"clustersReady"`
	Seconds          float64 `json:"seconds"`
	WritesPerCluster float64 `json:"writesPerCluster"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	RSSMiB           float64 `json:"rssMiB"`
}

func (r *result) wrong() error {
	var errs []error
	for _, m := range []measured{r.measured, r.More} {
		if m.ClustersApplied != m.Clusters || m.ClustersReady != m.Clusters {
			errs = append(errs, fmt.Errorf("%d of %d clusters have the Module, %d are Ready", m.ClustersApplied, m.Clusters, m.ClustersReady))
		}
		if m.WritesPerCluster > maxWrites {
			errs = append(errs, fmt.Errorf("writesPerCluster %.2f is above %.0f", m.WritesPerCluster, maxWrites))
		}
	}
	if r.CostRatioPerCluster > maxRatio {
		errs = append(errs, fmt.Errorf("costRatioPerCluster %.2f is above %.1f", r.CostRatioPerCluster, maxRatio))
	}
	return errors.Join(errs...)
}

func main() {
	clusters := flag.Int("clusters", 200, "number of clusters")
	timeout := flag.Duration("timeout", 10*time.Minute, "how long all clusters may take to be Ready")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *clusters, *timeout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-hub:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, clusters int, timeout time.Duration) error {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	var r result
	var err error
	if r.measured, err = measure(ctx, clusters, timeout, say); err != nil {
		return err
	}
	if r.More, err = measure(ctx, clusters*times, timeout, say); err != nil {
		return err
	}
	r.CostRatioPerCluster = (r.More.CPUSeconds / float64(r.More.Clusters)) / (r.CPUSeconds / float64(r.Clusters))
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return r.wrong()
}
