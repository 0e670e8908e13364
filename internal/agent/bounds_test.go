// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/report"
)

// TestAReportIsNeverRefused, however much there is to say: the API server takes a status as a whole
// or not at all.
func TestAReportIsNeverRefused(t *testing.T) {
	c := newCluster(t)
	a, err := newAPI(c.api, c.node)
	if err != nil {
		t.Fatal(err)
	}
	c.order(order("gadget", nil))
	long := strings.Repeat("ä", 5000)
	parameters := map[string]string{}
	for i := range 1000 {
		parameters[fmt.Sprintf("p%03d", i)] = strings.Repeat("x", 100)
	}
	outcomes, artifacts := map[orders.Key]report.Outcome{}, map[string]string{}
	for i := range 1100 {
		o := report.Outcome{Attempt: &orders.Attempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed}}
		if i < 600 {
			o.Live, o.Loaded = true, &journal.Load{Item: v1beta1.ModuleItem{Namespace: "team", Name: fmt.Sprintf("m%04d", i)},
				Observed: &v1beta1.ObservedModule{}}
		}
		outcomes[orders.Key{Namespace: "team", Name: fmt.Sprintf("m%04d", i)}] = o
	}
	for i := range 2100 {
		artifacts[fmt.Sprintf("d%04d", i)] = "digest"
	}
	outcomes[orders.Key{Namespace: "team", Name: "m0000"}] = report.Outcome{
		Live: true, Loaded: &journal.Load{
			Item:     v1beta1.ModuleItem{Namespace: "team", Name: "m0000"},
			Observed: &v1beta1.ObservedModule{BuildID: long, SrcVersion: long, Taint: long, Parameters: parameters},
		},
		Attempt: &orders.Attempt{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonQuarantined, Message: long,
			Holders: []orders.Holder{{Pod: "team/" + long, UID: "u1"}, {Pod: "team/short", UID: "u2"}, {Pod: "team/short", UID: long}},
			Strike:  &v1beta1.Strike{Delivery: "d1", Build: long, Began: metav1.NewTime(time.Unix(1, 0))},
		},
	}

	n, err := a.applyStatus(t.Context(), report.Status("boot", outcomes, artifacts, &v1beta1.NodeModulesConfigStatus{}, time.Unix(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	s := &n.Status
	if len(s.Modules) != report.MaxModules || len(s.Attempts) != report.MaxAttempts || len(s.Artifacts) != report.MaxArtifacts {
		t.Errorf("%d modules, %d attempts, %d artifacts", len(s.Modules), len(s.Attempts), len(s.Artifacts))
	}
	// What could be named is whole; the rest is cut, or not named.
	seen, attempt := s.Modules[0].Observed, s.Attempts[0]
	if n := len(seen.Parameters); n == 0 || n >= 256 || len(seen.Parameters["p000"]) != 100 || !strings.HasPrefix(long, seen.BuildID) ||
		seen.BuildID == "" {
		t.Errorf("%d parameters, build ID %q", n, seen.BuildID)
	}
	if !slices.Equal(attempt.Holders, []string{"team/short"}) || !slices.Equal(attempt.HolderUIDs, []string{"u2"}) ||
		!strings.HasPrefix(long, attempt.Strike.Build) {
		t.Errorf("holders %v %v, build %q", attempt.Holders, attempt.HolderUIDs, attempt.Strike.Build)
	}
}
