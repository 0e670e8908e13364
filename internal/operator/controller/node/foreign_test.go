// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestADefinitionWithoutConditionsIsToldByAnEvent: another chart has replaced the definition of
// Modules, so that no status with conditions can be written. The numbers, which every definition
// has, still are.
func TestADefinitionWithoutConditionsIsToldByAnEvent(t *testing.T) {
	s := newScene(t, 1)
	s.Redefine(t, definition.Modules, "properties.status.properties", func(status map[string]any, properties string) {
		fields := status[properties].(map[string]any) //nolint:errcheck,forcetypeassert // the shape of every CRD
		delete(fields, "conditions")
		delete(fields, "observedGeneration")
	})
	eventually(t, "the new definition is served", func(ctx context.Context) (bool, error) {
		m := &v1beta1.Module{}
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), m); err != nil {
			return false, err
		}
		m.Status.Conditions = []metav1.Condition{{
			Type: "Probe", Status: metav1.ConditionTrue, Reason: "Probe", LastTransitionTime: metav1.Now(),
		}}
		err := s.admin.Status().Update(ctx, m, client.FieldOwner("test"), client.DryRunAll)
		return err == nil && len(m.Status.Conditions) == 0, client.IgnoreNotFound(err)
	})
	g := &gate.Gate{}
	g.Set(&reasons.Problem{Reason: v1beta1.ReasonCRDIncompatible, Message: "the definitions are those of another operator"})
	startWith(t, s.Env, time.Now, g)
	name := s.nodes[0]
	s.order(t, name)
	s.report(t, name, s.live("boot-1"))
	s.awaitEvent(t, corev1.EventTypeWarning, v1beta1.ConditionReady, v1beta1.ReasonCRDIncompatible)
	eventually(t, "the numbers", func(ctx context.Context) (bool, error) {
		m := &v1beta1.Module{}
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), m)
		return m.Status.ModuleLoader.AvailableNumber == 1, err
	})
}
