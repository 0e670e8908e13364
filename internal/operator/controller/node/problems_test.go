// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestWhatOthersFoundOutlivesTheProcess: an operator that begins tells at once what stood before,
// and leaves it to its writers.
func TestWhatOthersFoundOutlivesTheProcess(t *testing.T) {
	s := newScene(t, 1)
	base := s.module.DeepCopy()
	s.module.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	if err := s.admin.Patch(t.Context(), s.module, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	const unmade = "DaemonSet nic cannot be made"
	s.tell(t, v1beta1.ProblemPlugin, problems.Whole(&reasons.Problem{Reason: v1beta1.ReasonDevicesPending, Message: unmade}))
	s.tell(t, v1beta1.ProblemDeliveries, map[string]reasons.Problem{
		s.nodes[0]: {Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota"},
	})
	start(t, s.Env)
	if c := s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonDeliveryRefused); !strings.Contains(c.Message,
		"exceeded quota") {
		t.Error(c.Message)
	}
	if c := s.awaitCondition(t, v1beta1.ConditionDevicesReady, metav1.ConditionFalse, v1beta1.ReasonDevicesPending); c.Message != unmade {
		t.Error(c.Message)
	}

	s.tell(t, v1beta1.ProblemDeliveries, nil)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonLoading)
	if p := facts.Problem(s.module, v1beta1.ProblemPlugin); p == nil || p.Message != unmade {
		t.Errorf("of what another controller found is left: %+v", p)
	}
}
