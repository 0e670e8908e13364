// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// usualOverall bounds a run, first builds included.
const usualOverall = 30 * time.Minute

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
	"install":   {maxSeconds: 1800, overall: time.Hour},
	"hub":       {maxSeconds: 1800, overall: time.Hour},
	"node":      {maxSeconds: 2700, overall: 75 * time.Minute},
	"selinux":   {maxSeconds: 2700, overall: 75 * time.Minute},
	"boot":      {builder: true},
	"build":     {maxSeconds: 1800, overall: time.Hour, builder: true},
	"dkms":      {memMB: 1536, maxSeconds: 3600, overall: 90 * time.Minute, builder: true},
}

// Group is the part of the steps to run; "main" is the default.
func Group() string { return cmp.Or(os.Getenv("GROUP"), "main") }

// Overall is how long the group may take, first builds included.
func Overall() time.Duration { return cmp.Or(machines[Group()].overall, usualOverall) }

// Step is one thing to prove. Its letter is the key in the result; several may share one.
type Step struct {
	letter, says string
	do           func(context.Context) error
}

// Show makes a step.
func Show(letter, says string, do func(context.Context) error) Step { return Step{letter, says, do} }

// Groups are steps by the names of groups, in lanes that run beside each other.
type Groups = func(*Suite) map[string][][]Step

// Run runs the group, and prints what came of it. questions are for whoever looks at a failed step:
// arguments of kubectl.
func Run(ctx context.Context, groups Groups, questions [][]string) (err error) {
	lanes, err := prepare(ctx, groups, questions)
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
	*Suite
	steps []Step
}

// prepare makes what all lanes need, and the lanes.
func prepare(ctx context.Context, groups Groups, questions [][]string) (lanes []lane, err error) {
	first := newSuite()
	all, known := groups(first)[Group()]
	if !known {
		return nil, fmt.Errorf("no group %q: GROUP is main, node, dra, operators, hub, agent, boot, privileges, build, dkms, disk, install, "+
			"release, selinux or versions", Group())
	}
	if err := first.prepare(ctx); err != nil {
		return nil, err
	}
	for i := range all {
		s := newSuite()
		s.Cache, s.Images, s.assets, s.building = first.Cache, first.Images, first.assets, first.building
		s.Patience, s.questions = first.Patience, questions
		steps := chosen(groups(s)[Group()][i])
		if len(all) > 1 && !slices.ContainsFunc(steps, func(s Step) bool { return s.letter != "" }) {
			continue // STEPS names none of it
		}
		if s.Dir, err = os.MkdirTemp("", "drover-e2e-"); err != nil {
			return lanes, err
		}
		lanes = append(lanes, lane{s, steps})
	}
	return lanes, nil
}

// chosen are the steps that STEPS names, with the start, or all.
func chosen(steps []Step) []Step {
	names := os.Getenv("STEPS")
	if names == "" {
		return steps
	}
	return slices.DeleteFunc(steps, func(s Step) bool { return s.letter != "" && !slices.Contains(strings.Split(names, ","), s.letter) })
}

// all runs the steps in order and ends at the first that fails, for the later ones stand on it.
func (s *Suite) all(ctx context.Context, steps []Step) error {
	for _, step := range steps {
		if step.letter != "" {
			s.Proved[step.letter] = false
		}
	}
	ok := map[string]bool{}
	for i, step := range steps {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			s.Say("FAILED %s: %s", step.letter, step.says)
			return errors.Join(fmt.Errorf("step %s (%s): %w", step.letter, step.says, err), s.explain())
		}
		s.Say("%-1s  %s (%.1f s)", step.letter, step.says, time.Since(begin).Seconds())
		if os.Getenv("TRACE") != "" && len(s.Nodes) > 0 {
			s.sayProcessor(ctx)
		}
		ok[step.letter] = true
		if step.letter != "" && (i+1 == len(steps) || steps[i+1].letter != step.letter) {
			s.Proved[step.letter] = ok[step.letter]
		}
	}
	return nil
}

func report(lanes []lane, took time.Duration, failed error) error {
	seconds := took.Round(100 * time.Millisecond).Seconds()
	var kernels, boots, notTested []string
	var tooHigh []error
	result, counts := map[string]any{"seconds": seconds}, map[string]int{}
	for _, l := range lanes {
		kernels, boots, notTested = append(kernels, l.kernels...), append(boots, l.Boots...), append(notTested, l.NotTested...)
		tooHigh = append(tooHigh, l.TooHigh...)
		for letter, proved := range l.Proved {
			elsewhere, too := result[letter].(bool)
			result[letter] = proved && (elsewhere || !too)
		}
		for name, value := range l.Figures {
			result[name] = value
		}
		for name, value := range l.Counts {
			counts[name] += value
			result[name] = counts[name]
		}
		maps.Copy(result, l.Extra)
		if l.Breaks != "" {
			result["break"] = l.Breaks
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
	if limit := cmp.Or(machines[Group()].maxSeconds, maxSeconds); failed == nil && seconds > limit {
		return fmt.Errorf("%.0f s are more than %.0f", seconds, limit)
	}
	return errors.Join(tooHigh...)
}
