// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	patchAccount = "patch serviceaccounts"
	patchConfig  = "patch configmaps"
	patchModule  = "patch modules"
	patchStatus  = "patch gadgets/status"
)

// TestAPassWritesOneChild: an object comes to its children one by one, and a pass that finds
// nothing to do writes nothing.
func TestAPassWritesOneChild(t *testing.T) {
	r := newRig(t)
	r.create("g", func(g *Gadget) { g.Spec.Account = true })
	if diff := cmp.Diff([][]string{{patchAccount}, {patchConfig}, {patchModule}, {patchStatus}}, r.settle("g")); diff != "" {
		t.Errorf("writes of each pass (-want +got):\n%s", diff)
	}
	r.wantSays("g", "Ready", "False Progressing", "0 of 0 nodes")
	r.ready("g")
	if diff := cmp.Diff([][]string{{patchStatus}}, r.settle("g")); diff != "" {
		t.Errorf("writes of each pass when it is ready (-want +got):\n%s", diff)
	}
	r.wantSays("g", "Ready", "True Reconciled")
	r.wantSays("g", "Errored", "False NoError")
	for _, child := range []client.Object{r.config("g"), r.module("g")} {
		if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != r.gadget("g").UID {
			t.Errorf("%T belongs to %+v", child, owner)
		}
	}
}

// TestWhatIsNotRightIsPutRight: whatever is done to the children, one write brings each back, and
// nothing else is touched.
func TestWhatIsNotRightIsPutRight(t *testing.T) {
	cases := map[string]struct {
		given func(r *rig)
		then  [][]string
	}{
		"a field of a child is changed": {func(r *rig) {
			m := r.module("g")
			m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example/other:1"
			r.must(r.admin.Update(r.Context(), m))
		}, [][]string{{patchModule}}},
		"an item is added to a list": {func(r *rig) {
			m := r.module("g")
			m.Spec.ModuleLoader.Container.Modprobe.Parameters = append(m.Spec.ModuleLoader.Container.Modprobe.Parameters, "evil=1")
			r.must(r.admin.Update(r.Context(), m))
		}, [][]string{{patchModule}}},
		"a child is deleted": {func(r *rig) { r.must(r.admin.Delete(r.Context(), r.config("g"))) }, [][]string{{patchConfig}}},
		"two are changed": {func(r *rig) {
			c, m := r.config("g"), r.module("g")
			c.Data["size"], m.Spec.Selector = "7", map[string]string{"other": "node"}
			r.must(r.admin.Update(r.Context(), c))
			r.must(r.admin.Update(r.Context(), m))
		}, [][]string{{patchConfig}, {patchModule}}},
		"somebody puts a label on a child": {func(r *rig) {
			c := r.config("g")
			c.Labels = map[string]string{"somebody": "else"}
			r.must(r.admin.Update(r.Context(), c))
		}, nil},
		"somebody sets what nobody asked for": {func(r *rig) {
			m := r.module("g")
			m.Spec.StartupTaint, m.Annotations["note"] = "example.com/not-yet", "mine"
			r.must(r.admin.Update(r.Context(), m))
		}, nil},
		"another wish": {func(r *rig) { r.change("g", func(g *Gadget) { g.Spec.Size = "6" }) },
			[][]string{{patchConfig}, {patchModule}, {patchStatus}}},
		"a wish less": {func(r *rig) { r.change("g", func(g *Gadget) { g.Spec.Size = "" }) },
			[][]string{{patchConfig}, {patchModule}, {patchStatus}}},
		"a child less": {func(r *rig) { r.change("g", func(g *Gadget) { g.Spec.Account = false }) },
			[][]string{{"delete serviceaccounts"}, {patchStatus}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("g", func(g *Gadget) { g.Spec.Account = true })
			r.settle("g")
			r.ready("g")
			r.settle("g")
			tc.given(r)
			if diff := cmp.Diff(tc.then, r.settle("g")); diff != "" {
				t.Errorf("writes of each pass (-want +got):\n%s", diff)
			}
			g := r.gadget("g")
			if diff := cmp.Diff(configOf(g).Data, r.config("g").Data); diff != "" && len(r.config("g").Data)+len(configOf(g).Data) > 0 {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(stored(g), r.module("g").Spec.ModuleLoader); diff != "" {
				t.Errorf("Module (-want +got):\n%s", diff)
			}
			if account := get(r, "g", &corev1.ServiceAccount{}); (account != nil) != g.Spec.Account {
				t.Errorf("there is an account: %t", account != nil)
			}
			r.wantSays("g", "Ready", "True Reconciled")
		})
	}
}

// TestWhatIsSomebodyElsesIsLeftAlone: an object of a child's name that does not belong to the
// object is neither written nor deleted.
func TestWhatIsSomebodyElsesIsLeftAlone(t *testing.T) {
	r := newRig(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "g-config"}, Data: map[string]string{"size": "5"}}
	r.must(r.admin.Create(t.Context(), theirs))
	r.create("g")
	r.settle("g")
	r.wantSays("g", "Ready", "False NameConflict", "ConfigMap g-config does not belong to Gadget g", "rename")
	r.wantSays("g", "Errored", "True NameConflict")
	if got := r.config("g"); got.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("their ConfigMap was written: %+v", got)
	}
	if m := r.module("g"); m != nil {
		t.Errorf("there is a Module: %+v", m)
	}
	if result := r.pass("g"); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	r.must(r.admin.Delete(t.Context(), theirs))
	r.settle("g")
	r.wantSays("g", "Errored", "False")
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	r.settle("g")
}

// TestAChildThatGoesIsMadeAgain, when it is gone and not before.
func TestAChildThatGoesIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.create("g")
	r.settle("g")
	m := r.module("g")
	m.Finalizers = []string{"example.com/slow"}
	r.must(r.admin.Update(t.Context(), m))
	r.must(r.admin.Delete(t.Context(), m))
	r.settle("g")
	r.wantSays("g", "Ready", "False Terminating", "Module g")
	r.wantSays("g", "Errored", "False")
	m = r.module("g")
	m.Finalizers = nil
	r.must(r.admin.Update(t.Context(), m))
	if diff := cmp.Diff([][]string{{patchModule}, {patchStatus}}, r.settle("g")); diff != "" {
		t.Errorf("writes of each pass (-want +got):\n%s", diff)
	}
}

// TestACheckComesBeforeAllWrites: what is refused changes nothing, not even what is there already.
func TestACheckComesBeforeAllWrites(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = "kit.example.com/children"
	r.create("new", func(g *Gadget) { g.Spec.Size = "none" })
	if diff := cmp.Diff([][]string{{patchStatus}}, r.settle("new")); diff != "" {
		t.Errorf("writes of each pass (-want +got):\n%s", diff)
	}
	r.wantSays("new", "Ready", "False NoSize")
	r.wantSays("new", "Errored", "True NoSize", "choose another")
	if got := r.gadget("new").Finalizers; len(got) > 0 {
		t.Errorf("finalizers %v", got)
	}

	r.create("old")
	r.settle("old")
	r.change("old", func(g *Gadget) { g.Spec.Size, g.Spec.Image = "none", "registry.example/gadget:2" })
	if diff := cmp.Diff([][]string{{patchStatus}}, r.settle("old")); diff != "" {
		t.Errorf("writes of each pass when there are children (-want +got):\n%s", diff)
	}
	if got := r.module("old").Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage; got != "registry.example/gadget:1" {
		t.Errorf("image %s", got)
	}
}

// TestRefusalsBecomeConditions: what the API server says is in the condition, with a reason that
// says whose matter it is.
func TestRefusalsBecomeConditions(t *testing.T) {
	cases := map[string]struct {
		given func(r *rig)
		then  []string
	}{
		"a Module that is not valid": {func(r *rig) { r.create("g", func(g *Gadget) { g.Spec.Image = "no-tag" }) }, []string{
			"Refused", "containerImage must name a tag or a digest",
		}},
		"a kind that the role lacks": {func(r *rig) {
			desired := r.op.Desired
			r.op.Desired = func(g *Gadget) ([]client.Object, error) {
				children, err := desired(g)
				return append(children, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}), err
			}
			r.create("g")
		}, []string{"Forbidden", `resource "services"`, "cannot get"}},
		"a wish that nobody can name": {func(r *rig) {
			r.op.Desired = func(*Gadget) ([]client.Object, error) { return nil, fmt.Errorf("size %q is no number", "x") }
			r.create("g")
		}, []string{"ReconcileFailed", `size "x" is no number`}},
		"a reason of the operator's own": {func(r *rig) {
			r.op.Explain = func(_ context.Context, _ *Gadget, child client.Object, refusal error) error {
				if _, ok := child.(*v1beta1.Module); ok {
					return &myProblem{refusal}
				}
				return nil
			}
			r.create("g", func(g *Gadget) { g.Spec.Image = "no-tag" })
		}, []string{"ReconcileFailed", "mine: ", "containerImage must name"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.given(r)
			for range 5 {
				_, _ = r.try("g")
			}
			r.wantSays("g", "Ready", append(tc.then, "False")...)
			r.wantSays("g", "Errored", append(tc.then, "True")...)
			told := r.told()
			if len(told) != 1 {
				t.Fatalf("events %q, want one", told)
			}
		})
	}
}

type myProblem struct{ error }

func (p *myProblem) Error() string { return "mine: " + p.error.Error() }
