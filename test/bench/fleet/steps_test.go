// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// oneLoad are the requests by which a node becomes ready, a second after the other.
func oneLoad(began time.Time) []audit.Request {
	label := func(name string) string { return `{"metadata":{"labels":{"` + name + `":""}}}` }
	all := []audit.Request{
		by("drover-operator/1", sent("create", "pods", "c", `{"spec":{"nodeName":"n"}}`)),
		by("drover-operator/1", sent("patch", "nodemodulesconfigs", "n", `{}`)),
		by("hollow-kubelet/1", sent("patch", "pods/status", "c", "")),
		by("drover-agent/1", sent("patch", "nodemodulesconfigs/status", "n", `{}`)),
		by("drover-operator/1", sent("patch", "nodes", "n", label(readyLabel))),
		by("kube-scheduler/1", sent("create", "pods/binding", "p", `{"target":{"kind":"Node","name":"n"}}`)),
		by("kwok/1", sent("patch", "pods/status", "p", "")),
		by("drover-operator/1", sent("patch", "nodes", "n", label(pluginLabel))),
	}
	for i := range all {
		all[i].Done = began.Add(time.Duration(i+1) * time.Second)
	}
	return all
}

// sent is a request of the audit log.
func sent(verb, resource, name, body string) audit.Request {
	r := audit.Request{Verb: verb, Body: json.RawMessage(body)}
	r.ObjectRef.Resource, r.ObjectRef.Subresource, _ = strings.Cut(resource, "/")
	r.ObjectRef.Name, r.ResponseStatus.Code = name, 200
	return r
}

func by(agent string, r audit.Request) audit.Request {
	r.UserAgent = agent
	return r
}

func TestSpreads(t *testing.T) {
	began := time.Now()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	cases := map[string]struct {
		given func(all []audit.Request) []audit.Request
		then  [steps]float64
		fails string
	}{
		"one after the other": {then: [steps]float64{1, 1, 1, 1, 1, 1, 1, 1}},
		"the kubelet before the order": {
			given: func(all []audit.Request) []audit.Request {
				all[ordered].Done, all[pulled].Done = at(3), at(2)
				return all
			},
			then: [steps]float64{1, 2, 0, 1, 1, 1, 1, 1},
		},
		"a second report": {
			given: func(all []audit.Request) []audit.Request {
				again := all[reported]
				again.Done = at(7.5)
				return append(all, again)
			},
			then: [steps]float64{1, 1, 1, 1, 1, 1, 1, 1},
		},
		"a pod that others call not ready first": {
			given: func(all []audit.Request) []audit.Request {
				unschedulable := by("kube-scheduler/1", sent("patch", "pods/status", "p", ""))
				unschedulable.Done = at(5.5)
				return append(all, unschedulable)
			},
			then: [steps]float64{1, 1, 1, 1, 1, 1, 1, 1},
		},
		"a write that was refused": {
			given: func(all []audit.Request) []audit.Request { all[labelled].ResponseStatus.Code = 409; return all },
			fails: "node n: the audit log does not show when it was labelled",
		},
		"nothing": {given: func([]audit.Request) []audit.Request { return nil }, fails: "no node's steps"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := oneLoad(began)
			if tc.given != nil {
				all = tc.given(all)
			}
			got, err := spreads(all, began)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Fatalf("error %v, want %q", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for s, want := range tc.then {
				if got[s].Mean != want || got[s].P99 != want || got[s].Step != step(s).String() {
					t.Errorf("%s: %+v, want %v s", step(s), got[s], want)
				}
			}
		})
	}
}

// TestReactionOf: of what a bare client sends, only reports and labels count.
func TestReactionOf(t *testing.T) {
	began := time.Now()
	all := oneLoad(began)
	for i := range all {
		all[i].UserAgent = "floor/1"
	}
	if got, err := reactionOf(all); got != 1 || err != nil {
		t.Errorf("%v s, %v, want 1 s", got, err)
	}
	all[labelled].Done = all[reported].Done.Add(-time.Second) // logged in another order
	if got, err := reactionOf(all); got != 0 || err != nil {
		t.Errorf("a label that was logged first: %v s, %v", got, err)
	}
	if got, err := reactionOf(all[:reported]); got != 0 || err != nil {
		t.Errorf("without a report: %v s, %v", got, err)
	}
	if _, err := reactionOf(nil); err == nil {
		t.Error("want an error: nothing was sent")
	}
}

// TestSpreadOf: ranks are of nodes that there are, and the mean is of all.
func TestSpreadOf(t *testing.T) {
	var values []float64
	for i := range 200 {
		values = append(values, float64(200-i))
	}
	if got, want := spreadOf(labelled, values), (spread{Step: "labelled", Mean: 100.5, P50: 100, P99: 198, Max: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := spreadOf(labelled, []float64{2}), (spread{Step: "labelled", Mean: 2, P50: 2, P99: 2, Max: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
