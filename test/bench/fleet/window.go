// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// window is a measured stretch of time.
type window struct {
	b     *bench
	began time.Time
	cpu   map[string]float64
	log   *audit.Log
}

// use is what a window took.
type use struct {
	Seconds float64 `json:"seconds"`
	// CPUSeconds of each program.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
	// Requests to the API server by everyone, as "drover-operator patch nodes".
	Requests map[string]int `json:"requests"`
}

func (b *bench) window() (*window, error) {
	log, err := audit.Open(b.f.Cluster.AuditLog)
	return &window{b: b, began: time.Now(), cpu: b.cpuSeconds(), log: log}, err
}

// begin opens the window of a load, when nobody has written for a while.
func (b *bench) begin(ctx context.Context) (*window, error) {
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	if _, err := b.log.Next(); err != nil {
		return nil, err
	}
	return b.window()
}

// end returns what the window took, and the requests of all.
func (w *window) end() (use, []audit.Request, error) {
	u := use{Seconds: seconds(w.began), CPUSeconds: w.b.cpuSeconds(), Requests: map[string]int{}}
	for name, now := range u.CPUSeconds {
		u.CPUSeconds[name] = math.Round(100*(now-w.cpu[name])) / 100
	}
	requests, err := w.log.Next()
	for _, r := range requests {
		program, _, _ := strings.Cut(r.UserAgent, "/")
		u.Requests[program+" "+r.Verb+" "+r.Resource()]++
	}
	return u, requests, err
}

// ticks is how many units of /proc's CPU times make a second: USER_HZ, 100 on all of Linux's
// architectures that Go runs on.
const ticks = 100

// cpuSeconds is what each program has used until now, by name; none where there is no /proc.
func (b *bench) cpuSeconds() map[string]float64 {
	programs := maps.Clone(b.f.Cluster.PIDs)
	programs["bench"], programs["hollow"] = os.Getpid(), b.f.Hollow.PID()
	if b.f.Operator != nil {
		programs["operator"] = b.f.Operator.PID()
	}
	used := map[string]float64{}
	for name, pid := range programs {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field, the program's name in parentheses, may hold anything.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			used[name] = (user + system) / ticks
		}
	}
	return used
}

// storageSeries is the size of etcd's database, as it tells the API server.
const storageSeries = "apiserver_storage_size_bytes{"

// sumOf adds up the series of metrics in Prometheus' text format that begin with a name and labels.
func sumOf(metrics io.Reader, series string) (float64, error) {
	sum, found := 0.0, false
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		labels, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(labels, series) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", labels, err)
		}
		sum, found = sum+n, true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("there is no series %s…", series)
	}
	return sum, nil
}

// etcdMiB is how large etcd's database is, with what is to be compacted.
func (b *bench) etcdMiB(ctx context.Context) (float64, error) {
	c, err := discovery.NewDiscoveryClientForConfig(b.f.AdminConfig)
	if err != nil {
		return 0, fmt.Errorf("connect to the API server's metrics: %w", err)
	}
	metrics, err := c.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the API server's metrics: %w", err)
	}
	defer func() { _ = metrics.Close() }()
	bytes, err := sumOf(metrics, storageSeries)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return math.Round(10*bytes/(1<<20)) / 10, nil
}
