// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/hack/gotest"
)

func lines(t *testing.T, events ...gotest.Event) io.Reader {
	t.Helper()
	var b strings.Builder
	for i := range events {
		text, err := json.Marshal(&events[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, string(text))
	}
	return strings.NewReader(b.String())
}

func TestTally(t *testing.T) {
	const all = ""
	ended := func(action, test string) gotest.Event { return gotest.Event{Action: action, Package: "p", Test: test} }
	said := func(test, line string) gotest.Event {
		return gotest.Event{Action: "output", Package: "p", Test: test, Output: line + "\n"}
	}
	cases := map[string]struct {
		chosen string
		given  []gotest.Event
		then   string
		fails  []string
	}{
		"all pass": {
			chosen: all,
			given: []gotest.Event{
				ended("pass", "TestLifecycleDeselected"), ended("pass", "TestRolloutOneAtATime"), ended("pass", "TestPreflightTouchesNoNode"),
				said("TestFailureMatrix/x", "    x_test.go:12: REASON InUse 2.04"), said("TestFailureMatrix/x", "    x_test.go:12: REASON InUse 3.04"),
				said("TestFailureMatrix/y", "    x_test.go:12: REASON Timeout 1"), ended("pass", "TestFailureMatrix/x"),
				ended("pass", "TestFailureMatrix"),
			},
			then: `{"failures":{"matrix":true},"lifecycle":{"deselected":true},"preflight":{"touchesNoNode":true},"reasons":2,"rollout":{"oneAtATime":true},"seconds":1.5,` +
				`"slowestReason":"InUse","slowestSeconds":3}`,
		},
		"one fails, one is skipped": {
			chosen: "lifecycle",
			given:  []gotest.Event{ended("fail", "TestLifecycleA"), ended("skip", "TestLifecycleB"), ended("pass", "TestLifecycleC")},
			then:   `{"lifecycle":{"a":false,"b":false,"c":true},"seconds":1.5}`,
			fails:  []string{"lifecycle a", "lifecycle b"},
		},
		"a group without tests": {
			chosen: "lifecycle, rollout",
			given:  []gotest.Event{ended("pass", "TestLifecycleA")},
			then:   `{"lifecycle":{"a":true},"rollout":{},"seconds":1.5}`,
			fails:  []string{"group rollout"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			groups, err := groupsOf(tc.chosen)
			if err != nil {
				t.Fatal(err)
			}
			tally := newTally(groups)
			if err := tally.follow(lines(t, tc.given...), io.Discard); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(tally.result(1500 * time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, string(got)); diff != "" {
				t.Errorf("RESULT (-want +got):\n%s", diff)
			}
			verdict := tally.verdict()
			if (verdict != nil) != (len(tc.fails) > 0) {
				t.Errorf("the verdict is %v", verdict)
			}
			for _, words := range tc.fails {
				if verdict != nil && !strings.Contains(verdict.Error(), words) {
					t.Errorf("the verdict does not name %s: %v", words, verdict)
				}
			}
		})
	}
}

func TestUnknownGroup(t *testing.T) {
	if groups, err := groupsOf("lifecycle,typo"); err == nil {
		t.Errorf("the groups are %v", groups)
	}
}
