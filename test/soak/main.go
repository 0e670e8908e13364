// SPDX-License-Identifier: Apache-2.0

// Command soak runs five Modules on many hollow nodes for a while, and makes storms of everything
// that goes wrong in a cluster: nodes reboot, into other kernels too; Modules and labels change;
// agents and the operator are killed; the API server goes away, and answers 429; the registry
// refuses images, disks are full, clocks are wrong. One seed makes the same storms again.
//
// After each storm there is a calm. Then all must become well within a while, which is waited for
// by watches: each kernel holds what its node is to have and nothing else, each node is labelled
// accordingly, each Module is Ready, no carrier is left, every agent watches its orders. In the
// end, the Modules are deleted, and nothing may be left of them. In each calm the API server's
// audit log and the fake kernels' journals are judged, see test/chaos/judge.
//
// Violations are:
//
//   - unasked unloads: of a kernel module that the order in force wanted to stay;
//   - wrong loads: of a build, or with parameters, that no order wanted;
//   - reloads over the limit: ordered while as many nodes as spec.rollout.maxUnavailable were
//     unavailable;
//   - history gaps: orders that the audit log lacks, so that nothing can be said;
//   - crashes: the operator ended by itself although the API server served it;
//   - repeated writes: of an object by a client whose last write of it, too, changed nothing;
//   - a calm in which not all became well, and what is left in the end.
//
// Growth is the number of series that end higher than they began by more than is allowed, see
// growth and allow. They are sampled in the calms, in which all is as it was before: the objects of
// the API by kind; goroutines, descriptors and memory of the operator and of the process with all
// agents.
//
// BREAK breaks something on purpose, so that the result must be red: unload (somebody removes a
// module behind Drover's back), leak (somebody watches the kernels again after each round, for
// good).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/soak/plan"
)

const (
	modules = 5
	// storm is how long one lasts. A calm takes what is left of a minute, or more: after an outage,
	// watches begin again within half a minute.
	storm = 15 * time.Second
	// diskSize of each agent: what it keeps free, and as much again.
	diskSize = 64 << 20
	// unknown is what the result says before anything was judged.
	unknown = -1
)

// options are the flags.
type options struct {
	nodes, minutes int
	seed           uint64
	patience       time.Duration
	dir            string
}

// rounds are one for each minute, and one for what the first begins with.
func (o options) rounds() int { return o.minutes + 1 }

// result is the line that ends the run.
type result struct {
	Nodes   int     `json:"nodes"`
	Modules int     `json:"modules"`
	Minutes int     `json:"minutes"`
	Seed    uint64  `json:"seed"`
	Plan    string  `json:"plan"` // its digest: the same seed makes the same
	Seconds float64 `json:"seconds"`
	Rounds  int     `json:"rounds"`
	// Violations are the sum of the next eight.
	Violations      int `json:"violations"`
	UnaskedUnloads  int `json:"unaskedUnloads"`
	WrongLoads      int `json:"wrongLoads"`
	LimitExceeded   int `json:"limitExceeded"`
	HistoryGaps     int `json:"historyGaps"`
	OperatorCrashes int `json:"operatorCrashes"`
	RepeatedWrites  int `json:"repeatedWrites"`
	NotConverged    int `json:"notConverged"`
	Leftovers       int `json:"leftovers"`
	// Growth is how many series grew.
	Growth int `json:"growth"`
	// Faults that happened, by kind.
	Faults map[plan.Kind]int `json:"faults"`
	// What faults met: agents killed at a call to the kernel, requests of ours that were answered by
	// 429, pulls that failed, and what agents wrote to full disks in vain.
	AgentKills   int `json:"agentKills"`
	Throttled    int `json:"throttled"`
	PullsRefused int `json:"pullsRefused"`
	NoSpace      int `json:"noSpace"`
	// OperatorExits are ends by itself, as at a start without an API server.
	OperatorExits int `json:"operatorExits"`
	// What the kernels did, and how many reloads were judged against the limit.
	Boots         int `json:"boots"`
	Loads         int `json:"loads"`
	Reloads       int `json:"reloads"`
	Removals      int `json:"removals"`
	ReloadsJudged int `json:"reloadsJudged"`
	// Writes of ours, and those of them that changed nothing.
	Writes     int `json:"writes"`
	NoopWrites int `json:"noopWrites"`
	// SlowestCalmSeconds is the longest until all was well.
	SlowestCalmSeconds float64 `json:"slowestCalmSeconds"`
	// Series are where each began and ended, objects only if they grew.
	Series map[string][2]float64 `json:"series"`
}

// sum adds the violations up.
func (r *result) sum() {
	r.Violations = r.UnaskedUnloads + r.WrongLoads + r.LimitExceeded + r.HistoryGaps + r.OperatorCrashes + r.RepeatedWrites + r.NotConverged +
		r.Leftovers
}

// wrong names every bound that the result breaks.
func (r *result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Violations == 0, "%d violations", r.Violations)
	check(r.Growth == 0, "%d series grow", r.Growth)
	for kind, n := range r.Faults {
		check(n > 0, "nothing of this kind happened: %s", kind)
	}
	check(r.AgentKills > 0, "no agent was killed at a call")
	check(r.Throttled > 0, "no request was answered by 429")
	check(r.PullsRefused > 0, "no pull failed")
	check(r.NoSpace > 0, "no disk was full when an agent wrote")
	check(r.Reloads > 0 && r.ReloadsJudged > 0 && r.Removals > 0, "%d reloads, %d of them judged, and %d removals", r.Reloads, r.ReloadsJudged,
		r.Removals)
	return errors.Join(errs...)
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 300, "number of hollow nodes")
	flag.IntVar(&o.minutes, "minutes", 10, "about how long, in minutes: a storm and a calm each")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything that happens")
	flag.DurationVar(&o.patience, "patience", fuse.RetryAfter+5*time.Minute, "how long all may take to become well after a storm: "+
		"longer than a node waits whose last boots look as if a module had ended them")
	flag.StringVar(&o.dir, "dir", "", "folder for logs and state (default: a temporary one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%6.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	metrics, err := fleet.FreeAddress()
	if err != nil {
		return err
	}
	begin = time.Now() // what has to be built is built
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: o.nodes, Kernels: kernels, Say: say, KeepBodies: true, Dir: o.dir, DiskSize: diskSize,
		OperatorArgs: []string{"--metrics-bind-address=" + metrics, "--metrics-secure=false"},
		HollowArgs:   []string{"--module-params=" + parameter},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	s := newScene(f, o, metrics, say)
	played := s.play(ctx)
	var judged error
	if played != nil {
		judged = s.judge(context.WithoutCancel(ctx)) // what happened until then
	}
	s.judgeGrowth()
	s.result.sum()
	s.result.Seconds = seconds(time.Since(begin))
	line, err := json.Marshal(s.result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	say("writes that changed nothing: %v", s.audit.noop)
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(played, judged, s.result.wrong())
}

func seconds(d time.Duration) float64 { return round(d.Seconds()) }

func round(v float64) float64 { return math.Round(10*v) / 10 }
