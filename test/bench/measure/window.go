// SPDX-License-Identifier: Apache-2.0

package measure

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

// Window is a measured stretch of time.
type Window struct {
	Began time.Time

	rig *Rig
	cpu map[string]float64
	log *audit.Log
}

// Use is what a window took.
type Use struct {
	Seconds float64 `json:"seconds"`
	// CPUSeconds of each program.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
	// Requests to the API server by everyone, as "drover-operator patch nodes".
	Requests map[string]int `json:"requests"`
}

func (r *Rig) window() (*Window, error) {
	log, err := audit.Open(r.Cluster.AuditLog)
	return &Window{rig: r, Began: time.Now(), cpu: r.cpuSeconds(), log: log}, err
}

// End returns what the window took, and the requests of all.
func (w *Window) End() (Use, []audit.Request, error) {
	u := Use{Seconds: Seconds(w.Began), CPUSeconds: w.rig.cpuSeconds(), Requests: map[string]int{}}
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

// Late are the requests that were logged since the window's end: the API server shows a write to
// those who watch before it logs it.
func (w *Window) Late() ([]audit.Request, error) { return w.log.Next() }

// ticks is how many units of /proc's CPU times make a second: USER_HZ, 100 on all of Linux's
// architectures that Go runs on.
const ticks = 100

// cpuSeconds is what each program has used until now, by name; none where there is no /proc.
func (r *Rig) cpuSeconds() map[string]float64 {
	programs := maps.Clone(r.Cluster.PIDs)
	programs["bench"], programs["hollow"] = os.Getpid(), r.Hollow.PID()
	if r.Operator != nil {
		programs["operator"] = r.Operator.PID()
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

// SumOf adds up the series of metrics in Prometheus' text format that begin with a name and labels.
func SumOf(metrics io.Reader, series string) (float64, error) {
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

// EtcdMiB is how large etcd's database is, with what is to be compacted.
func (r *Rig) EtcdMiB(ctx context.Context) (float64, error) {
	c, err := discovery.NewDiscoveryClientForConfig(r.AdminConfig)
	if err != nil {
		return 0, fmt.Errorf("connect to the API server's metrics: %w", err)
	}
	metrics, err := c.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the API server's metrics: %w", err)
	}
	defer func() { _ = metrics.Close() }()
	bytes, err := SumOf(metrics, storageSeries)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return math.Round(10*bytes/(1<<20)) / 10, nil
}
