// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
)

// TestAnAgentThatTakesNoParametersIsMissing: nothing has to be delivered for them, so no carrier
// tells. Another process begins to wait anew.
func TestAnAgentThatTakesNoParametersIsMissing(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.change(m, func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1"} })
	w.pass(m)
	if after := w.pass(m).RequeueAfter; after != nodeplan.AnswerTime {
		t.Errorf("the next look is due after %v", after)
	}
	w.quiet(m)

	w.later(nodeplan.AnswerTime)
	w.pass(m)
	if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonAgentMissing {
		t.Errorf("it tells %+v", w.problems(m))
	}
	w.quiet(m)

	w.agent(node, w.live(w.ordered(node, m), 0))
	if after := w.pass(m).RequeueAfter; after != 0 {
		t.Errorf("with an answer, the next look is due after %v", after)
	}
	if p := w.problems(m); len(p) != 0 {
		t.Errorf("with an answer, it tells %+v", p)
	}
}
