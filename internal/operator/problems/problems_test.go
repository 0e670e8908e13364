// SPDX-License-Identifier: Apache-2.0

package problems_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

type world struct {
	*testing.T
	env      *env.Env
	admin    client.Client
	operator client.Client
	module   *v1beta1.Module
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	w := &world{T: t, env: e, admin: e.Admin(t), operator: e.Client(t, e.Config(t, env.Operator))}
	w.module = &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace(t), Name: "nic"},
		Spec:       v1beta1.ModuleSpec{Selector: map[string]string{}},
	}
	w.must(w.admin.Create(t.Context(), w.module))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// told reads the Module again.
func (w *world) told(part v1beta1.ProblemPart) map[string]reasons.Problem {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(w.module), w.module))
	return facts.Problems(w.module, part)
}

// report reports twice, and fails the test unless there are as many writes as given at first, and
// none then.
func (w *world) report(part v1beta1.ProblemPart, found map[string]reasons.Problem, writes int) {
	w.Helper()
	for _, want := range []int{writes, 0} {
		mark := w.env.Mark(w)
		w.must(problems.Report(w.Context(), w.operator, w.module, part, found))
		got := 0
		for _, n := range w.env.Writes(w, mark) {
			got += n
		}
		if got != want {
			w.Errorf("%d writes, want %d", got, want)
		}
		w.told(part)
	}
}

// TestEachPartIsItsControllers: nobody takes away what another found, nor what the reporter wrote,
// and the last problem leaves an object that the API server takes.
func TestEachPartIsItsControllers(t *testing.T) {
	w := newWorld(t)
	refused := map[string]reasons.Problem{
		"n1":             {Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota"},
		v1beta1.AllNodes: {Reason: v1beta1.ReasonDeliveryRefused, Message: "no policy"},
	}
	class := map[string]reasons.Problem{v1beta1.AllNodes: {Reason: v1beta1.ReasonDeviceClassConflict}}
	w.report(v1beta1.ProblemImages, nil, 0)
	w.report(v1beta1.ProblemImages, class, 1)
	w.report(v1beta1.ProblemImages, nil, 1) // nothing else is in the status
	w.report(v1beta1.ProblemDeliveries, refused, 1)
	w.report(v1beta1.ProblemPlugin, class, 1)
	w.module.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDeliveryRefused, LastTransitionTime: metav1.Now(),
	}}
	w.must(w.admin.Status().Update(t.Context(), w.module))

	w.report(v1beta1.ProblemDeliveries, refused, 0)
	delete(refused, v1beta1.AllNodes)
	w.report(v1beta1.ProblemDeliveries, refused, 1)
	if got := w.told(v1beta1.ProblemDeliveries); !maps.Equal(got, refused) {
		t.Errorf("told %v, want %v", got, refused)
	}
	w.report(v1beta1.ProblemDeliveries, nil, 1)
	if got := w.told(v1beta1.ProblemPlugin); !maps.Equal(got, class) || len(w.module.Status.Problems) != 1 {
		t.Errorf("what is left: %v", w.module.Status.Problems)
	}
	w.report(v1beta1.ProblemPlugin, nil, 1)
	if len(w.module.Status.Problems) != 0 || len(w.module.Status.Conditions) != 1 {
		t.Errorf("what is left: %+v", w.module.Status)
	}
}

// TestAModuleThatIsGone gets no status, and its namesake none that outlives its own first pass.
func TestAModuleThatIsGone(t *testing.T) {
	w := newWorld(t)
	found := problems.Whole(&reasons.Problem{Reason: v1beta1.ReasonUnsupported})
	gone := w.module.DeepCopy()
	w.must(w.admin.Delete(t.Context(), w.module))
	w.must(problems.Report(t.Context(), w.operator, gone, v1beta1.ProblemPlugin, found))
	w.module.ObjectMeta = metav1.ObjectMeta{Namespace: gone.Namespace, Name: gone.Name}
	w.must(w.admin.Create(t.Context(), w.module))
	w.must(problems.Report(t.Context(), w.operator, gone, v1beta1.ProblemPlugin, found))
	w.told(v1beta1.ProblemPlugin)
	w.must(problems.Report(t.Context(), w.operator, w.module, v1beta1.ProblemPlugin, nil))
	if got := w.told(v1beta1.ProblemPlugin); len(got) != 0 {
		t.Errorf("the namesake has %v", got)
	}
}

// TestFiveThousandNodes fit: the first are named, and the others are one entry that does not change
// with their number.
func TestFiveThousandNodes(t *testing.T) {
	w := newWorld(t)
	found := map[string]reasons.Problem{}
	for i := range 5000 {
		found[fmt.Sprintf("node-%04d", i)] = reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "begins" +
			strings.Repeat("x", 10_000) + "ends"}
	}
	w.report(v1beta1.ProblemDeliveries, found, 1)
	delete(found, "node-4711")
	w.report(v1beta1.ProblemDeliveries, found, 0)
	told := w.told(v1beta1.ProblemDeliveries)
	if len(told) != 65 || told["node-0063"].Reason == "" || told["node-0064"].Reason != "" {
		t.Errorf("%d problems are told", len(told))
	}
	for node, p := range told {
		if len(p.Message) > 2100 || !strings.HasPrefix(p.Message, "begins") || !strings.HasSuffix(p.Message, "ends") {
			t.Errorf("%s: %d bytes", node, len(p.Message))
		}
	}
	if p := told[v1beta1.OtherNodes]; p.Reason != v1beta1.ReasonDeliveryRefused {
		t.Errorf("of the others: %v", p)
	}
}
