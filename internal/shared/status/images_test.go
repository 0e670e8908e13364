// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	ours "github.com/drover-project/drover/internal/shared/status"
)

// TestImagesAvailable: which images are not there, why, and that nodes which hold theirs are Ready
// all the same.
func TestImagesAvailable(t *testing.T) {
	failed := &reasons.Problem{Reason: v1beta1.ReasonBuildFailed, Message: "image r/m:1 for kernel 6.1.0, try 5 of 5: m.c:3:1: error: " +
		"expected ';'\nmake: *** Error 1"}
	building := &reasons.Problem{Reason: v1beta1.ReasonBuilding, Message: "Job j makes it"}
	with := func(kernel string, p *reasons.Problem, givenUp bool) func(int, *ours.Node) {
		return func(_ int, n *ours.Node) {
			n.Kernel, n.Image, n.Delivery = kernel, &desired.Image{Kernel: kernel, Architecture: "amd64", Problem: p, GivenUp: givenUp}, p
		}
	}
	for name, tc := range map[string]struct {
		given   ours.Module
		then    string
		ready   string
		stalled bool
	}{
		"nobody makes any": {given: ours.Module{Loads: true, Nodes: nodes(1, live)}, then: "none", ready: "True"},
		"all there": {
			given: ours.Module{Loads: true, Makes: true, Nodes: nodes(2, live, with("6.1", nil, false))},
			then:  "True ImagesAvailable: The registry has 1 image", ready: "True",
		},
		"lost, while nodes hold it": {
			given: ours.Module{Loads: true, Makes: true, Nodes: nodes(1, with("6.1", building, false), live)},
			then:  "False Building: 0 of 1 image available; Building for 6.1 (amd64): Job j makes it", ready: "True",
		},
		"one failed, one on its way": {
			given: ours.Module{Loads: true, Makes: true,
				Nodes: append(nodes(1, with("6.1", building, false)), nodes(1, with("6.12", failed, false))...)},
			then: "False BuildFailed: 0 of 2 images available; BuildFailed for 6.12 (amd64): image r/m:1 for kernel 6.1.0, try 5 of 5: m.c:3:1: " +
				"error: expected ';'; " +
				"Building for 6.1 (amd64): Job j makes it", ready: "False",
		},
		"given up": {
			given: ours.Module{Loads: true, Makes: true, Nodes: nodes(1, with("6.1", failed, true))},
			then: "False BuildFailed: 0 of 1 image available; BuildFailed for 6.1 (amd64): image r/m:1 for kernel 6.1.0, try 5 of 5: m.c:3:1: " +
				"error: expected ';'",
			ready: "False", stalled: true,
		},
		"a ConfigMap is missing": {
			given: ours.Module{Loads: true, Makes: true,
				ImageProblem: &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: "ConfigMap d is missing"}, Nodes: nodes(1)},
			then: "False BuildInputMissing: ConfigMap d is missing", ready: "False",
		},
		"no node": {given: ours.Module{Loads: true, Makes: true}, then: "True NoNodes: spec.selector matches no node that can " +
			"load kernel modules", ready: "False"},
		"prebuilt for this one": {given: ours.Module{Loads: true, Makes: true, Nodes: nodes(1, live)},
			then: "True NotRequested: No selected node needs an image that is built or signed in the cluster", ready: "True"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ours.Compute(&tc.given).Conditions
			if l := line(got, v1beta1.ConditionImagesAvailable); l != tc.then {
				t.Errorf("%s\nwant %s", l, tc.then)
			}
			if l := line(got, v1beta1.ConditionReady); l[:len(tc.ready)] != tc.ready {
				t.Errorf("Ready: %s", l)
			}
			if l := line(got, v1beta1.ConditionStalled); (l != "none") != tc.stalled {
				t.Errorf("Stalled: %s", l)
			}
		})
	}
}

// TestToolsReadImages as kstatus does: made, on its way, given up.
func TestToolsReadImages(t *testing.T) {
	for condition, want := range map[string]status.Status{
		"": status.CurrentStatus, v1alpha1.ConditionReconciling: status.InProgressStatus, v1alpha1.ConditionStalled: status.FailedStatus,
	} {
		image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "i", Generation: 2}}
		image.Status.ObservedGeneration = 2
		if condition != "" {
			image.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonBuildFailed},
				{Type: condition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonBuildFailed, Message: "error"},
			}
		}
		if got := read(t, image); got.Status != want {
			t.Errorf("%q: %s: %s", condition, got.Status, got.Message)
		}
	}
}
