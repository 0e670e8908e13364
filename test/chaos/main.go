// SPDX-License-Identifier: Apache-2.0

// Command chaos upgrades a Module on many hollow nodes again and again while the operator is killed
// every two seconds, many nodes reboot at once and the API server goes away and comes back. In the
// end it judges from outside, by the API server's audit log and the fake kernels' journals of
// calls: was anything unloaded that no order asked for, and were more nodes without their kernel
// module than the policy allows when a reload was ordered?
//
// BREAK breaks something on purpose, so that the result must be red: unload (somebody removes the
// module behind Drover's back), limit (the Module allows more nodes at a time than the judge does).
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

	"github.com/drover-project/drover/internal/testkit/fleet"
)

var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// result is the line that ends the run.
type result struct {
	Nodes   int     `json:"nodes"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// Upgrades that every kernel took.
	Upgrades       int `json:"upgrades"`
	UnaskedUnloads int `json:"unaskedUnloads"`
	// LimitExceeded are reloads that were ordered while the policy's number of nodes, or more, was
	// unavailable.
	LimitExceeded int `json:"limitExceeded"`
	// Converged: each upgrade ended with every kernel holding it, every node labelled and the Module
	// Ready, and the Module's deletion with nothing left in any kernel nor in the API.
	Converged bool `json:"converged"`
	// OperatorKills by SIGKILL; OperatorExits are starts that ended by themselves, as without an API
	// server.
	OperatorKills int `json:"operatorKills"`
	OperatorExits int `json:"operatorExits"`
	Reboots       int `json:"reboots"`
	APIRestarts   int `json:"apiRestarts"`
	// OutageSeconds is how long the API server was away in all.
	OutageSeconds float64 `json:"outageSeconds"`
	// Loads, Reloads and Removals are what the kernels did; WrongLoads are loads of what no order
	// wanted.
	Loads      int `json:"loads"`
	Reloads    int `json:"reloads"`
	Removals   int `json:"removals"`
	WrongLoads int `json:"wrongLoads"`
	// OrdersWritten by the operator, and how many of them while it was being killed. HistoryGaps are
	// orders that the audit log lacks.
	OrdersWritten    int `json:"ordersWritten"`
	OrdersUnderKills int `json:"ordersUnderKills"`
	HistoryGaps      int `json:"historyGaps"`
	// MostDown is the most kernels without the module at one time, whatever the cause, before the
	// Module was deleted.
	MostDown int `json:"mostDown"`
	// ReloadsJudged against the limit; ReloadsWhileDown are of nodes that the API showed as down.
	// MostUnavailable is the most nodes that were unavailable when a reload was ordered, that one
	// included, and Limits are the upgrades' limits.
	ReloadsJudged    int     `json:"reloadsJudged"`
	ReloadsWhileDown int     `json:"reloadsWhileDown"`
	MostUnavailable  int     `json:"mostUnavailable"`
	Limits           []int   `json:"limits"`
	NoticeSeconds    float64 `json:"noticeSeconds"`
}

// wrong names every bound that the result breaks.
func (r result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Converged, "not converged")
	check(r.UnaskedUnloads == 0, "%d unloads that nobody asked for", r.UnaskedUnloads)
	check(r.WrongLoads == 0, "%d loads of what no order wanted", r.WrongLoads)
	check(r.LimitExceeded == 0, "%d reloads over the limit", r.LimitExceeded)
	check(r.HistoryGaps == 0, "%d orders are not in the audit log: nothing can be said", r.HistoryGaps)
	check(r.OperatorKills > 0 && r.OrdersUnderKills > 0, "%d kills and %d orders between them: no chaos", r.OperatorKills, r.OrdersUnderKills)
	check(r.Reboots > 0, "no node was rebooted")
	check(r.APIRestarts > 0, "the API server was never away")
	check(r.Reloads >= r.Nodes, "%d reloads of %d nodes: no upgrade", r.Reloads, r.Nodes)
	return errors.Join(errs...)
}

func main() {
	nodes := flag.Int("nodes", 500, "number of hollow nodes")
	seed := flag.Uint64("seed", 1, "of what is random: which nodes reboot, when the API server goes and for how long")
	patience := flag.Duration("patience", 4*time.Minute, "how long one upgrade may take")
	dir := flag.String("dir", "", "folder for logs and state (default: a temporary one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *nodes, *seed, *patience, *dir)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, seed uint64, patience time.Duration, dir string) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	begin = time.Now() // what has to be built is built
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: nodes, Kernels: kernels, Say: say, KeepBodies: true, Dir: dir,
		NodeLabels: map[string]string{selector: "true"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	s := newScene(f, nodes, seed, patience, say)
	played := s.play(ctx)
	judged := s.judge(ctx)
	s.result.Seconds = time.Since(begin).Round(100 * time.Millisecond).Seconds()
	line, err := json.Marshal(s.result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(played, judged, s.result.wrong())
}
