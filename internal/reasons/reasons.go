// SPDX-License-Identifier: Apache-2.0

// Package reasons knows what each reason of the closed set means and what to do about it. The page
// docs/reference/reasons.md is its only source, and a test keeps that page and the set equal.
package reasons

import (
	"slices"
	"strings"
	"sync"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/docs/reference"
)

// Reason is one of the closed set.
type Reason struct {
	// Name in CamelCase.
	Name string
	// Final: it does not end by itself; see [Final].
	Final bool
	// Meaning and Next are plain text; Next is empty when there is nothing to do.
	Meaning, Next string
}

// Of is what is known of a reason; the zero Reason for one that is not of the set.
func Of(name string) Reason { return all()[name] }

// patience are the reasons that ask for patience only.
var patience = []string{
	v1beta1.ReasonLoading, v1beta1.ReasonBuilding, v1beta1.ReasonUnloading, v1beta1.ReasonAwaitingDelivery, v1beta1.ReasonPaused, v1beta1.ReasonRebootRequired,
	v1beta1.ReasonWrongKernel, v1beta1.ReasonDrifted, v1beta1.ReasonDevicesPending, v1beta1.ReasonRollingOut, v1beta1.ReasonVersionLabel,
	v1beta1.ReasonPreflightRunning,
}

// Patience reports whether a reason asks for patience only: what it names goes on by itself, or was asked for.
func Patience(name string) bool { return slices.Contains(patience, name) }

// Final reports whether a reason does not end by itself: until somebody changes the Module, the image or the node, nothing is tried again, or
// the answer will be the same. What may come with another Module, with the registry or with the node's own recovery is not final.
func Final(name string) bool { return all()[name].Final }

var all = sync.OnceValue(func() map[string]Reason { return parse(reference.Reasons) })

// parse reads the tables of the page: | `Name` | meaning | next step |, where attention is needed | `Name` | final | meaning | next step |.
func parse(page string) map[string]Reason {
	found := map[string]Reason{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		name := strings.TrimSpace(cells[0])
		n := len(cells)
		if n < 3 || n > 4 || !strings.HasPrefix(name, "`") {
			continue
		}
		r := Reason{Name: strings.Trim(name, "`"), Final: n == 4 && plain(cells[1]) == "yes", Meaning: plain(cells[n-2]), Next: plain(cells[n-1])}
		if r.Next == "none" {
			r.Next = ""
		}
		found[r.Name] = r
	}
	return found
}

func plain(cell string) string { return strings.ReplaceAll(strings.TrimSpace(cell), "`", "") }
