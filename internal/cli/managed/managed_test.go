// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/reasons"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// stopped is a rollout that a bad build stopped in its first wave.
func stopped() *hubv1beta1.ManagedClusterModule {
	const says = "ready on 1 of 3 clusters; cluster north: VermagicMismatch on hollow-0"
	m := &hubv1beta1.ManagedClusterModule{
		ObjectMeta: metav1.ObjectMeta{Name: "nic", Generation: 2, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec:       hubv1beta1.ManagedClusterModuleSpec{SpokeNamespace: "drivers"},
	}
	s := &m.Status
	s.NumberDesired, s.NumberApplied, s.NumberReady, s.Wave, s.ObservedGeneration = 3, 3, 1, "canary", 2
	s.ModuleLoader.DesiredNumber, s.ModuleLoader.AvailableNumber = 6, 4
	s.Conditions = []metav1.Condition{
		{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonVermagicMismatch, Message: says,
			ObservedGeneration: 2},
		{Type: v1beta1.ConditionImagesAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable,
			Message: "all clusters have their images", ObservedGeneration: 2},
	}
	s.Clusters = []hubv1beta1.ClusterStatus{
		{Name: "north", Reason: v1beta1.ReasonVermagicMismatch, Message: "VermagicMismatch on hollow-0", DesiredNumber: 2},
		{Name: "south", Reason: v1beta1.ReasonRollingOut, DesiredNumber: 2, AvailableNumber: 2},
		{Name: "east", Ready: true, DesiredNumber: 2, AvailableNumber: 2},
	}
	return m
}

func printed(t *testing.T, write func(out *bytes.Buffer), want string) {
	t.Helper()
	var out bytes.Buffer
	write(&out)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAllInOneTable(t *testing.T) {
	young := stopped()
	young.Name, young.Generation = "young", 3
	rows := []Row{RowOf(stopped(), noon), RowOf(young, noon)}
	if Worst(rows) != Failed || Worst(rows[1:]) != Waiting || Worst(nil) != Ready {
		t.Error("the worst of all is another one")
	}
	printed(t, func(out *bytes.Buffer) { Render(out, paint.Painter{}, rows, false) }, `MANAGEDCLUSTERMODULE   STATE     CLUSTERS   LOADED   WAVE     REASON             AGE
nic                    Failed    1/3        4/6      canary   VermagicMismatch   60m
young                  Waiting   1/3        4/6      canary   NotSeen            60m
`)
}

func TestOneAndItsClusters(t *testing.T) {
	one := OneOf(stopped(), noon)
	printed(t, func(out *bytes.Buffer) { one.Render(out, paint.Painter{}, false) }, `ManagedClusterModule nic: VermagicMismatch, Ready on 1 of 3 clusters, in wave canary.
Next step: `+reasons.Next(v1beta1.ReasonVermagicMismatch)+`
Why: drover explain nic

CLUSTER   STATE     LOADED   REASON
north     Failed    0/2      VermagicMismatch
south     Waiting   2/2      RollingOut
east      Ready     2/2      Ready
`)
}

// TestExplainNamesTheWayOn: what the hub cannot see, a command on the cluster can.
func TestExplainNamesTheWayOn(t *testing.T) {
	one := OneOf(stopped(), noon)
	printed(t, func(out *bytes.Buffer) { one.Explain(out, paint.Painter{}) }, `ManagedClusterModule nic: VermagicMismatch, Ready on 1 of 3 clusters, in wave canary.
  Are the images made?                   yes  all clusters have their images
  Do they say that it is loaded?         no  VermagicMismatch  ready on 1 of 3 clusters; cluster north: VermagicMismatch on hollow-0

VermagicMismatch  north
  north says: VermagicMismatch on hollow-0
  Next step: `+reasons.Next(v1beta1.ReasonVermagicMismatch)+`
  On the cluster: drover explain nic -n drivers --context north

RollingOut  south
  Next step: wait: spec.rollout sets the order in which clusters get a change, and the message says how far it is
  On the cluster: drover explain nic -n drivers --context south
`)
}
