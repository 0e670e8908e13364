// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"
	"unicode"

	workv1 "open-cluster-management.io/api/work/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzPlatforms: however much a cluster claims, few platforms are taken, and those are possible.
func FuzzPlatforms(f *testing.F) {
	f.Add("amd64/6.1.0-18-amd64\narm64/6.8.0\n", "")
	f.Add("", "6.1.0\n6.1.0\n../x\n")
	f.Add("/\n//\na/b/c\n\n", "x")
	f.Add(strings.Repeat("amd64/6.1.0\n", 1000), "")
	f.Fuzz(func(t *testing.T, platforms, kernels string) {
		claims := map[string]string{KernelsClaim: kernels}
		if platforms != "" {
			claims = map[string]string{PlatformsClaim: platforms}
		}
		found, left := Platforms(claims)
		if len(found) > MaxPlatforms || left < 0 {
			t.Fatalf("%d platforms, %d left", len(found), left)
		}
		nodes := map[Platform]int{}
		for _, p := range found {
			if nodes[p]++; nodes[p] > 1 || strings.ContainsAny(p.Kernel+p.Architecture, "/ \n") || p.Kernel == "" || p.Architecture == "" {
				t.Errorf("platform %+v", p)
			}
		}
		// A hub reads what a spoke says of the same nodes.
		mine, out := ClaimsOf(nodes)
		again, refused := Platforms(mine)
		if len(again)+out != len(found) || refused > 0 {
			t.Errorf("%d of %d platforms are claimed, %d left out, %d refused", len(again), len(found), out, refused)
		}
	})
}

// FuzzReport: what a cluster reports is one short line each, that steers no terminal.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"m"}}`), "no\x1b[2Jroom\nhere", "AppliedManifestWorkFailed")
	f.Add([]byte(`null`), strings.Repeat("é", 5000), "")
	f.Add([]byte(`{"metadata":{"name":"other"}}`), "", "\xff")
	f.Fuzz(func(t *testing.T, raw []byte, message, reason string) {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
		work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Message: message, Reason: reason}}
		if m := ModuleOf(work); m != nil && m.Name != "m" {
			t.Errorf("Module %q", m.Name)
		}
		r := ReportOfWork(work)
		steers := func(c rune) bool { return !unicode.IsPrint(c) }
		if r.Applied || len(r.Refused) > maxMessage+len("…") || strings.ContainsFunc(r.Refused, steers) {
			t.Errorf("%+v", r)
		}
	})
}
