// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/bench/measure"
)

// step is what a node waits for, one after the other, until its device plugin is ready. Each ends
// with a request, of which the audit log has the time.
type step int

const (
	queued       step = iota // until the operator has created the carrier
	ordered                  // until it has written the order
	pulled                   // until the kubelet says that the carrier runs
	reported                 // until the agent has loaded the kernel module and reports it
	labelled                 // until the operator has labelled the node ready
	pluginBound              // until the device plugin's pod is bound to the node
	pluginReady              // until the kubelet says that the pod is ready
	pluginLabels             // until the operator has labelled the node for its device plugin
	steps
)

func (s step) String() string {
	return [...]string{"queued", "ordered", "pulled", "loaded and reported", "labelled", "plugin pod bound", "plugin ready",
		"plugin labelled"}[s]
}

// spread is how long a step took on the fleet's nodes, in seconds.
type spread struct {
	Step string  `json:"step"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// ends are the times at which a node's steps ended.
type ends [steps]time.Time

// reaction is what the operator took at most, for 99 nodes of 100, from a node's report to what it
// writes about it.
func reaction(all []spread) float64 { return all[labelled].P99 }

// reactionOf is what the same took where a bare client sent the requests; 0: it has no such node.
func reactionOf(requests []audit.Request) (float64, error) {
	nodes, err := stepsOf(requests)
	if err != nil {
		return 0, err
	}
	var took []float64
	for _, n := range nodes {
		if !n[reported].IsZero() && !n[labelled].IsZero() {
			took = append(took, max(0, n[labelled].Sub(n[reported]).Seconds()))
		}
	}
	if len(took) == 0 {
		return 0, nil
	}
	return spreadOf(labelled, took).P99, nil
}

// steps says where the seconds of a load's nodes went. The API server shows a write to those who
// watch before it logs it, so that what was logged after the window's end counts, too.
func (b *bench) steps(requests []audit.Request, w *measure.Window) error {
	late, err := w.Late()
	if err != nil {
		return err
	}
	if b.result.Steps, err = spreads(append(requests, late...), w.Began); err != nil {
		return err
	}
	b.result.ReactionP99Seconds = reaction(b.result.Steps)
	return printSteps(os.Stdout, b.result.Steps)
}

// spreads says where the seconds of nodes go that were given something at a time. A step that ended
// before the one before it took no time, so that the steps of a node sum to the whole.
func spreads(requests []audit.Request, began time.Time) ([]spread, error) {
	nodes, err := stepsOf(requests)
	if err != nil {
		return nil, err
	}
	var took [steps][]float64
	for node, n := range nodes {
		before := began
		for s, end := range n {
			if end.IsZero() {
				return nil, fmt.Errorf("node %s: the audit log does not show when it was %s", node, step(s))
			}
			if end.Before(before) {
				end = before
			}
			took[s] = append(took[s], end.Sub(before).Seconds())
			before = end
		}
	}
	var all []spread
	for s, values := range took {
		all = append(all, spreadOf(step(s), values))
	}
	return all, nil
}

func spreadOf(s step, values []float64) spread {
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	// The nearest rank.
	rank := func(p float64) float64 { return round(values[max(0, int(math.Ceil(p*float64(len(values))))-1)]) }
	return spread{Step: s.String(), Mean: round(sum / float64(len(values))), P50: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

func round(seconds float64) float64 { return math.Round(1000*seconds) / 1000 }

// stepsOf reads when the steps of each node ended. Of requests that were sent more than once, the
// first ended the step.
func stepsOf(requests []audit.Request) (map[string]*ends, error) {
	nodes, pods := map[string]*ends{}, map[string]string{}
	for _, r := range requests {
		node, err := boundTo(r)
		if err != nil {
			return nil, err
		}
		if node != "" {
			pods[r.ObjectRef.Name] = node
		}
	}
	for _, r := range requests {
		node, s := stepOf(r, pods)
		if node == "" || r.ResponseStatus.Code >= 300 {
			continue
		}
		if nodes[node] == nil {
			nodes[node] = &ends{}
		}
		if end := &nodes[node][s]; end.IsZero() || r.Done.Before(*end) {
			*end = r.Done
		}
	}
	if len(nodes) == 0 {
		return nil, errors.New("the audit log shows no node's steps")
	}
	return nodes, nil
}

// boundTo is the node that a request binds a pod to: that of a carrier, which is made on its node,
// or the scheduler's choice.
func boundTo(r audit.Request) (string, error) {
	switch r.Verb + " " + r.Resource() {
	case "create pods":
		if r.Ours() {
			return measure.NodeOf(r.Body)
		}
	case "create pods/binding":
		var binding struct {
			Target struct {
				Name string `json:"name"`
			} `json:"target"`
		}
		if err := json.Unmarshal(r.Body, &binding); err != nil {
			return "", fmt.Errorf("read a binding from the audit log: %w", err)
		}
		return binding.Target.Name, nil
	}
	return "", nil
}

// stepOf is the step that a request ends, and of which node; no node: it ends none.
func stepOf(r audit.Request, pods map[string]string) (string, step) {
	program, _, _ := strings.Cut(r.UserAgent, "/")
	switch r.Verb + " " + r.Resource() {
	case "create pods":
		if r.Ours() {
			return pods[r.ObjectRef.Name], queued
		}
	case "create pods/binding":
		return pods[r.ObjectRef.Name], pluginBound
	case "patch pods/status":
		switch program {
		case "hollow-kubelet":
			return pods[r.ObjectRef.Name], pulled
		case "kwok":
			return pods[r.ObjectRef.Name], pluginReady
		}
	case "patch nodemodulesconfigs":
		return r.ObjectRef.Name, ordered
	case "patch nodemodulesconfigs/status":
		return r.ObjectRef.Name, reported
	case "patch nodes":
		switch {
		case strings.Contains(string(r.Body), pluginLabel):
			return r.ObjectRef.Name, pluginLabels
		case strings.Contains(string(r.Body), readyLabel):
			return r.ObjectRef.Name, labelled
		}
	}
	return "", 0
}

// printSteps writes a table of where a node's seconds go.
func printSteps(out io.Writer, all []spread) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "a node's step\tmean s\tp50\tp99\tmax")
	failures := []error{err}
	for _, s := range all {
		_, err := fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\n", s.Step, s.Mean, s.P50, s.P99, s.Max)
		failures = append(failures, err)
	}
	return errors.Join(append(failures, w.Flush())...)
}
