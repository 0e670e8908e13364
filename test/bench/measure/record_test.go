// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

var module = types.NamespacedName{Namespace: "drivers", Name: "m"}

// sent is a request of the audit log.
func sent(verb, resource, name, body string) audit.Request {
	r := audit.Request{Verb: verb, Body: json.RawMessage(body)}
	r.ObjectRef.Resource, r.ObjectRef.Subresource, _ = strings.Cut(resource, "/")
	r.ObjectRef.Name, r.ResponseStatus.Code = name, 200
	return r
}

func label(name, value string) audit.Request {
	return sent("patch", "nodes", "n", fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, name, value))
}

// Requests for one node, in their order.
var (
	readyLabel  = v1beta1.ReadyLabel(module.Namespace, module.Name)
	pluginLabel = v1beta1.DevicePluginReadyLabel(module.Namespace, module.Name)

	create   = sent("create", "pods", "c", `{"spec":{"nodeName":"n"}}`)
	remove   = sent("delete", "pods", "c", `{"preconditions":{"uid":"c-1"}}`)
	orderOf1 = sent("patch", "nodemodulesconfigs", "n", `{"spec":{"modules":[{"delivery":{"carrierUID":"c-1"}}]}}`)
	status   = sent("patch", "nodemodulesconfigs/status", "n", `{"status":1}`)
	again    = sent("patch", "nodemodulesconfigs/status", "n", `{"status":2}`)

	loaded = []audit.Request{
		sent("patch", "daemonsets", "plugin", `{"kind":"DaemonSet"}`), create, orderOf1, status, again,
		label(readyLabel, `""`), remove, label(pluginLabel, `""`),
	}
	upgraded = []audit.Request{
		create, sent("patch", "nodemodulesconfigs", "n", `{"spec":{"modules":[{"next":{"carrierUID":"c-1"}}]}}`), status, remove,
		orderOf1, label(readyLabel, `null`), again, label(readyLabel, `""`), label(pluginLabel, `null`), label(pluginLabel, `""`),
	}
	deleted = []audit.Request{
		sent("patch", "nodemodulesconfigs", "n", `{"spec":{"modules":[{"state":"Absent"}]}}`), label(pluginLabel, `null`), status,
		label(readyLabel, `null`), sent("patch", "nodemodulesconfigs", "n", `[{"op":"remove","path":"/spec/modules/0"}]`),
		sent("delete", "nodemodulesconfigs", "n", `{}`),
	}
)

func TestRecord(t *testing.T) {
	cases := map[string]struct {
		protocol *Protocol
		given    []audit.Request
		// then is the status that each report has.
		then map[string]string
	}{
		"a load, the last of its kind": {Load(module), loaded, map[string]string{report: `{"status":2}`}},
		"an upgrade":                   {Upgrade(module), upgraded, map[string]string{imported: `{"status":1}`, report: `{"status":2}`}},
		"a deletion":                   {Delete(module), deleted, map[string]string{report: `{"status":1}`}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := test.protocol.Record(test.given)
			if err != nil {
				t.Fatal(err)
			}
			if n := r.nodes["n"]; len(r.nodes) != 1 || len(n) != len(test.protocol.stages) {
				t.Errorf("recorded: %+v", r.nodes)
			}
			for stage, want := range test.then {
				if got := r.nodes["n"][stage]; string(got.Body) != want {
					t.Errorf("%s is %s, want %s", stage, got.Body, want)
				}
			}
		})
		for i, missing := range test.given {
			if strings.Contains(string(missing.Body), readyLabel) && test.protocol.stages[1].name == next {
				continue // a node may do without
			}
			if missing.Resource() == status.Resource() && test.then[imported] == "" && test.then[report] == string(again.Body) {
				continue // there are two
			}
			t.Run(fmt.Sprintf("%s, without request %d, %s %s", name, i, missing.Verb, missing.Resource()), func(t *testing.T) {
				all := slices.Clone(test.given)
				all[i].ResponseStatus.Code = 409
				if _, err := test.protocol.Record(all); err == nil {
					t.Error("the floor would be too low")
				}
			})
		}
	}
}

// An agent sees its order before the API server logs that it has answered the operator, and may be
// logged before it.
func TestRecordOfAFastAgent(t *testing.T) {
	all := slices.Clone(upgraded)
	for i := range all {
		all[i].Received = time.Unix(int64(i), 0)
	}
	at := slices.IndexFunc(all, func(r audit.Request) bool { return string(r.Body) == string(orderOf1.Body) })
	all[at], all[at+2] = all[at+2], all[at]
	r, err := Upgrade(module).Record(all)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.nodes["n"]; string(got[imported].Body) != string(status.Body) || string(got[report].Body) != string(again.Body) {
		t.Errorf("recorded: %+v", got)
	}
}

// A device plugin can restart so fast that nobody saw it away. Its label then stays, and no request
// is missing.
func TestRecordWithoutAnAbsence(t *testing.T) {
	var all []audit.Request
	for _, r := range upgraded {
		if !strings.Contains(string(r.Body), pluginLabel) {
			all = append(all, r)
		}
	}
	if len(all) != len(upgraded)-2 {
		t.Fatalf("%d requests of %d", len(all), len(upgraded))
	}
	if _, err := Upgrade(module).Record(all); err != nil {
		t.Error(err)
	}
}

// What is sent again is about objects that there are now.
func TestBody(t *testing.T) {
	cases := map[string]struct{ given, then audit.Request }{
		"an order names its carrier": {
			orderOf1, sent("patch", "", "", `{"spec":{"modules":[{"delivery":{"carrierUID":"c-2"}}]}}`),
		},
		"an order names its object": {
			sent("patch", "nodemodulesconfigs", "n", `{"kind":"NodeModulesConfig","apiVersion":"v","metadata":{"name":"n","uid":"o-1","labels":{}}}`),
			sent("patch", "", "", `{"kind":"NodeModulesConfig","apiVersion":"v","metadata":{"name":"n","uid":"o-2","labels":{}}}`),
		},
		"a withdrawal tests the version": {
			sent("patch", "nodemodulesconfigs", "n", `[{"op":"test","path":"/metadata/resourceVersion","value":"1"}]`),
			sent("patch", "", "", `[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`),
		},
		"a carrier's delete": {remove, sent("", "", "", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"c-2"}}`)},
		"an object's delete": {
			sent("delete", "nodemodulesconfigs", "n", `{}`),
			sent("", "", "", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"o-2","resourceVersion":"7"}}`),
		},
		"a report stays": {status, status},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			n := &node{sent: map[string]audit.Request{uncarry: remove}, carrier: "c-2", config: "o-2", version: 7}
			got, err := n.body(&test.given)
			if err != nil || string(got) != string(test.then.Body) {
				t.Errorf("got %s (%v), want %s", got, err, test.then.Body)
			}
		})
	}
	t.Run("an order of another carrier", func(t *testing.T) {
		other := sent("patch", "nodemodulesconfigs", "n", `{"spec":{"modules":[{"delivery":{"carrierUID":"c-9"}}]}}`)
		n := &node{sent: map[string]audit.Request{uncarry: remove}, carrier: "c-2"}
		if got, err := n.body(&other); err == nil {
			t.Errorf("got %s", got)
		}
	})
}

// A stage waits for what its sender must know, for the cluster, and for a place.
func TestDue(t *testing.T) {
	p := newReplay(&Recording{protocol: Upgrade(module)}, nil, 1)
	known := func(n *node, stages ...string) *node {
		n.answered, n.wrote = map[string]bool{}, map[string]uint64{}
		for i, s := range stages {
			n.answered[s], n.wrote[s] = true, uint64(i+1) //nolint:gosec // a few
		}
		return n
	}
	pods := func(pairs ...types.UID) map[types.UID]bool {
		m := map[types.UID]bool{}
		for _, pod := range pairs {
			m[pod] = true
		}
		return m
	}
	runs := func(saw uint64) *node { return &node{agentSaw: saw, carrier: "c", runs: pods("c")} }
	plugins := func(ready ...types.UID) *node { return &node{plugins: pods(ready...), old: pods("old")} }
	cases := map[string]struct {
		given *node
		stage string
		then  bool
	}{
		"the first waits for nothing":      {known(&node{}), carrier, true},
		"an answer is missing":             {known(&node{}), next, false},
		"its own request was answered":     {known(&node{}, carrier), next, true},
		"the agent has not seen the order": {known(runs(1), carrier, next), imported, false},
		"the carrier does not run":         {known(&node{agentSaw: 2, carrier: "c"}, carrier, next), imported, false},
		"the agent may report":             {known(runs(2), carrier, next), imported, true},
		"the operator has not seen it":     {known(&node{operatorSaw: 2}, carrier, next, imported), order, false},
		"the operator may order":           {known(&node{operatorSaw: 3}, carrier, next, imported), order, true},
		"the old device plugin is ready":   {known(plugins("old"), unready), unplugged, false},
		"the old device plugin is not":     {known(plugins(), unready), unplugged, true},
		"only the old device plugin is":    {known(plugins("old"), ready, unplugged), plugged, false},
		"the new device plugin is ready":   {known(plugins("new"), ready, unplugged), plugged, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := p.due(test.given, p.stage(test.stage)); got != test.then {
				t.Errorf("due: %t", got)
			}
		})
	}
}
