// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command e2e proves Drover's main job on real kernels: nodes in QEMU with containerd and a kubelet join an embedded control plane,
// the operator and the agent are deployed from config/default as an administrator does it, kernel modules are compiled here, and only
// API objects ask for anything. Facts about kernels are read over the nodes' serial consoles, never from our own status.
//
// GROUP chooses what is proved: "main" (the default), "node", which is about drift, reboots and busy modules, "dra", "operators", which is about device
// operators and the sample device plugin, "hub", a hub that builds for two spokes of hollow nodes, "agent", which measures what the agent costs, "privileges", which takes away all that the agent is allowed, one thing at a time, "build", in which images are built and signed on
// a node of their own, "dkms", which does so with each of Debian's packages PKGS, "disk", which has no cluster and cuts the power of a machine in the middle of loads, or "versions", which is group "release" once for each release of
// Kubernetes whose kubelets have no image volumes (KUBERNETES=1.31 GROUP=release for one). STEPS=rmmod,inUse runs only those of the group, for work on them: some
// stand on the ones before. TRACE=1 prints how long each thing took that a step waited for.
// It ends with one line RESULT: a boolean per step, and figures. BREAK=image asks for an image that does not exist, so that the result is red;
// in group agent, BREAK=busy lets modules come and go while it should be idle;
// in group disk, BREAK=fsync takes fsync away from the agent's state files, SEED chooses the moments, and CUTS how many;
// in group privileges, BREAK=item takes nothing away; in group build, BREAK=unsigned has the unsigned image pushed, too;
// in groups versions and release, BREAK=mode asks for image volumes.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// overall bounds a run, first builds included.
const overall = 30 * time.Minute

// maxSeconds bounds the steps, first builds not included.
const maxSeconds = 900.0

// machine is what a group needs more than others; zeros are the usual.
type machine struct {
	memMB, smp int
	maxSeconds float64
	overall    time.Duration
	// builder: there is a node that only builds, too.
	builder bool
}

// machines of groups that run more on the node than others, or take longer.
var machines = map[string]machine{
	"disk":      {overall: time.Hour},
	"versions":  {overall: 2 * time.Hour},
	"operators": {memMB: 1536},
	"hub":       {maxSeconds: 1800, overall: time.Hour},
	"build":     {maxSeconds: 1800, overall: time.Hour, builder: true},
	"dkms":      {memMB: 1536, maxSeconds: 3600, overall: 90 * time.Minute, builder: true},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(machines[group()].overall, overall))
	do := run
	switch group() {
	case "disk":
		do = disk
	case "versions":
		do = versions
	}
	err := do(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-kernel:", err)
		os.Exit(1)
	}
}

// group is the part of the steps to run; "main" is the default.
func group() string { return cmp.Or(os.Getenv("GROUP"), "main") }

// step is one thing to prove. Its letter is the key in the result; several may share one.
type step struct {
	letter, says string
	do           func(context.Context) error
}

func run(ctx context.Context) (err error) {
	lanes, err := prepare(ctx)
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.stop())
		}
	}()
	if err != nil {
		return err
	}
	begin := time.Now()
	failed := make([]error, len(lanes))
	var running sync.WaitGroup
	for i, l := range lanes {
		l.begin = begin
		running.Go(func() { failed[i] = l.all(ctx, l.steps) })
	}
	running.Wait()
	whole := errors.Join(failed...)
	return errors.Join(whole, report(lanes, time.Since(begin), whole))
}

// lane is a part of a group that runs beside the others, on a control plane and nodes of its own.
type lane struct {
	*suite
	steps []step
}

// prepare makes what all lanes need, and the lanes.
func prepare(ctx context.Context) (lanes []lane, err error) {
	first := newSuite()
	groups, known := first.groups()[group()]
	if !known {
		return nil, fmt.Errorf("no group %q: GROUP is main, node, dra, operators, hub, agent, privileges, build, dkms, disk, release or versions", group())
	}
	if err := first.prepare(ctx); err != nil {
		return nil, err
	}
	for i := range groups {
		s := newSuite()
		s.cache, s.images, s.assets, s.building = first.cache, first.images, first.assets, first.building
		s.patience = first.patience
		steps := chosen(s.groups()[group()][i])
		if len(groups) > 1 && !slices.ContainsFunc(steps, func(s step) bool { return s.letter != "" }) {
			continue // STEPS names none of it
		}
		if s.dir, err = os.MkdirTemp("", "drover-e2e-"); err != nil {
			return lanes, err
		}
		lanes = append(lanes, lane{s, steps})
	}
	return lanes, nil
}

// chosen are the steps that STEPS names, with the start, or all.
func chosen(steps []step) []step {
	names := os.Getenv("STEPS")
	if names == "" {
		return steps
	}
	return slices.DeleteFunc(steps, func(s step) bool { return s.letter != "" && !slices.Contains(strings.Split(names, ","), s.letter) })
}

// all runs the steps in order and ends at the first that fails, for the later ones stand on it.
func (s *suite) all(ctx context.Context, steps []step) error {
	for _, step := range steps {
		if step.letter != "" {
			s.proved[step.letter] = false
		}
	}
	ok := map[string]bool{}
	for i, step := range steps {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			s.say("FAILED %s: %s", step.letter, step.says)
			return errors.Join(fmt.Errorf("step %s (%s): %w", step.letter, step.says, err), s.explain())
		}
		s.say("%-1s  %s (%.1f s)", step.letter, step.says, time.Since(begin).Seconds())
		if os.Getenv("TRACE") != "" && len(s.nodes) > 0 {
			s.sayProcessor(ctx)
		}
		ok[step.letter] = true
		if step.letter != "" && (i+1 == len(steps) || steps[i+1].letter != step.letter) {
			s.proved[step.letter] = ok[step.letter]
		}
	}
	return nil
}

func report(lanes []lane, took time.Duration, failed error) error {
	seconds := took.Round(100 * time.Millisecond).Seconds()
	var kernels, boots, notTested []string
	var tooHigh []error
	result := map[string]any{"seconds": seconds}
	for _, l := range lanes {
		kernels, boots, notTested = append(kernels, l.kernels...), append(boots, l.boots...), append(notTested, l.notTested...)
		tooHigh = append(tooHigh, l.tooHigh...)
		for letter, proved := range l.proved {
			result[letter] = proved
		}
		for name, value := range l.figures {
			result[name] = value
		}
		maps.Copy(result, l.extra)
		if l.breaks != "" {
			result["break"] = l.breaks
		}
	}
	slices.Sort(kernels)
	result["kernels"], result["bootIDs"] = slices.Compact(kernels), boots
	if len(notTested) > 0 {
		result["notTested"] = notTested
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if limit := cmp.Or(machines[group()].maxSeconds, maxSeconds); failed == nil && seconds > limit {
		return fmt.Errorf("%.0f s are more than %.0f", seconds, limit)
	}
	return errors.Join(tooHigh...)
}
