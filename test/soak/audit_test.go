// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// TestCount: a write that leaves the resource version as it was has changed nothing; a client whose
// last write of the object, too, did so repeats itself.
func TestCount(t *testing.T) {
	type write struct {
		by, uid, version string
		code             int
	}
	const operator, agent, admin = "drover-operator/v1", "drover-agent/v1", "kubectl/v1"
	for _, tc := range []struct {
		name                             string
		writes                           []write
		all, noop, repeats, tooManyTimes int
	}{
		{name: "each changes something", writes: []write{{operator, "a", "1", 200}, {agent, "a", "2", 200}, {operator, "b", "2", 200}}, all: 3},
		{name: "one changes nothing", writes: []write{{operator, "a", "1", 200}, {operator, "a", "1", 200}}, all: 2, noop: 1},
		{name: "again and again", writes: []write{{operator, "a", "1", 200}, {operator, "a", "1", 200}, {operator, "a", "1", 200}},
			all: 3, noop: 2, repeats: 1},
		{name: "with a change between", writes: []write{{operator, "a", "1", 200}, {operator, "a", "1", 200}, {operator, "a", "2", 200},
			{operator, "a", "2", 200}}, all: 4, noop: 2},
		{name: "two clients once each", writes: []write{{admin, "a", "1", 200}, {operator, "a", "1", 200}, {agent, "a", "1", 200}}, all: 2,
			noop: 2},
		{name: "somebody else", writes: []write{{admin, "a", "1", 200}, {admin, "a", "1", 200}, {admin, "a", "1", 200}}},
		{name: "refused", writes: []write{{operator, "a", "1", 200}, {operator, "a", "1", 429}, {agent, "a", "1", 429}, {admin, "a", "1", 429}},
			all: 1, tooManyTimes: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &auditor{last: map[string]string{}, noop: map[string]int{}, idle: map[string]time.Time{}}
			for _, w := range tc.writes {
				r := audit.Request{Verb: "patch", UserAgent: w.by, Object: json.RawMessage(
					fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q}}`, w.uid, w.version))}
				r.ObjectRef.Resource, r.ResponseStatus.Code = "nodes", w.code
				if err := a.count(r); err != nil {
					t.Fatal(err)
				}
			}
			noop := 0
			for _, n := range a.noop {
				noop += n
			}
			if a.writes != tc.all || noop != tc.noop || len(a.repeats) != tc.repeats || a.throttled != tc.tooManyTimes {
				t.Errorf("%d writes, %d changed nothing, %d repeated, %d refused", a.writes, noop, len(a.repeats), a.throttled)
			}
		})
	}
}
