// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// The calls of a fake kernel's journal.
const (
	load     = "finit_module"
	unload   = "delete_module"
	insmod   = "insmod"
	rmmod    = "rmmod"
	reboot   = "reboot"
	returned = "returned"
)

// What names a build and its parameters.
func What(buildID string, params []string) string {
	return strings.TrimSpace(buildID + " " + strings.Join(params, " "))
}

// state is what a kernel holds of the module from a time on; "" is nothing.
type state struct {
	from time.Time
	what string
}

// states are all that a kernel ever held of the module.
func states(calls []fake.Call, module string) []state {
	var all []state
	for _, c := range calls {
		switch {
		case c.Call == reboot:
			all = append(all, state{from: c.Time})
		case c.Module != module || c.Result != "":
		case c.Call == load, c.Call == insmod:
			all = append(all, state{from: c.Time, what: What(c.BuildID, c.Params)})
		case gone(c):
			all = append(all, state{from: c.Time})
		}
	}
	return all
}

// gone says whether the call took the module out of the kernel.
func gone(c fake.Call) bool {
	return c.Result == "" && (c.Call == unload || c.Call == rmmod || c.Call == returned && c.BuildID == "")
}

// after is the index of the first element that is later than t.
func after[T any](all []T, t time.Time, at func(T) time.Time) int {
	return sort.Search(len(all), func(i int) bool { return at(all[i]).After(t) })
}

func from(s state) time.Time { return s.from }

// held is what the kernel held at a time.
func held(all []state, t time.Time) string {
	if i := after(all, t, from); i > 0 {
		return all[i-1].what
	}
	return ""
}

// had says whether the kernel held any build until a time.
func had(all []state, t time.Time) bool {
	return slices.ContainsFunc(all[:after(all, t, from)], func(s state) bool { return s.what != "" })
}

// heldBetween says whether the kernel held what was wanted at any time between two.
func heldBetween(all []state, want string, begin, end time.Time) bool {
	i := max(after(all, begin, from)-1, 0)
	return slices.ContainsFunc(all[i:max(i, after(all, end, from))], func(s state) bool { return s.what == want })
}

// Down is the most kernels at one time that had held the module and did not: after a reboot, or
// between unload and load.
func Down(nodes []Node, module string) int {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, n := range nodes {
		up, seen := false, false
		for _, s := range states(n.Calls, module) {
			switch {
			case up && s.what == "":
				changes = append(changes, change{s.from, 1})
			case !up && seen && s.what != "":
				changes = append(changes, change{s.from, -1})
			}
			up = s.what != ""
			seen = seen || up
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	down, most := 0, 0
	for _, c := range changes {
		down += c.by
		most = max(most, down)
	}
	return most
}
