// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// policy makes a ModulePolicy that lets the world's Modules load from another registry only.
func (w *world) policy(mode v1alpha1.ModulePolicyMode) *v1alpha1.ModulePolicy {
	w.Helper()
	p := &v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Spec: v1alpha1.ModulePolicySpec{
		Mode: mode, Images: []string{"other.example/*"},
		NamespaceSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
	}}
	w.must(w.admin.Create(w.Context(), p))
	w.Cleanup(func() { w.must(client.IgnoreNotFound(w.admin.Delete(context.Background(), p))) })
	return p
}

func TestAPolicyKeepsAModuleFromNodes(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	p := w.policy(v1alpha1.PolicyEnforce)
	w.pass(m)
	if len(w.carriers(m)) != 0 || w.config(node) != nil {
		t.Error("what a policy denies is delivered")
	}
	told := w.problems(m)[node.Name]
	want := "spec.moduleLoader.container.kernelMappings: ModulePolicy " + p.Name +
		" does not allow the image registry.example/nic:" + kernelVersion
	if told.Reason != v1beta1.ReasonPolicyDenied || told.Message != want {
		t.Errorf("told %+v, want %q", told, want)
	}
	w.quiet(m)

	w.must(w.admin.Delete(t.Context(), p))
	w.pass(m)
	if len(w.carriers(m)) != 1 || w.entry(node, m) == nil || len(w.problems(m)) != 0 {
		t.Error("the policy has gone, and nothing is delivered")
	}
}

// TestAPolicyLeavesWhatIsThere, also on a node that has booted since, and through a restart.
func TestAPolicyLeavesWhatIsThere(t *testing.T) {
	w := newWorld(t)
	old, fresh, m := w.node("a"), w.node("b"), w.module("nic")
	w.relabel(fresh, "other")
	w.load(old, m)
	w.policy(v1alpha1.PolicyEnforce)
	w.quiet(m)

	booted := client.MergeFrom(old.DeepCopy())
	old.Status.NodeInfo.BootID = "boot-2"
	w.must(w.admin.Status().Patch(t.Context(), old, booted))
	w.relabel(fresh, w.namespace)
	w.use(w.operator)
	before := w.ordered(old, m).DeepCopy()
	w.pass(m)
	if got := w.ordered(old, m); got.State != before.State || got.Delivery.ID != before.Delivery.ID {
		t.Errorf("the order has changed to %+v", got)
	}
	if w.config(fresh) != nil {
		t.Error("a node that comes later gets the module")
	}
	if told := w.problems(m); len(told) != 1 || told[fresh.Name].Reason != v1beta1.ReasonPolicyDenied {
		t.Errorf("told %+v", told)
	}
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	if e := w.ordered(old, m); e.State != v1beta1.NodeModuleAbsent {
		t.Errorf("a deleted Module stays: %+v", e)
	}
}

func TestAPolicyKeepsAChangeFromNodes(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1"}
	patch := []byte(`{"spec":{"moduleLoader":{"container":{"modprobe":{"parameters":["debug=1"]}}}}}`)
	w.must(w.admin.Patch(t.Context(), m, client.RawPatch("application/merge-patch+json", patch)))
	p := w.policy(v1alpha1.PolicyEnforce)
	w.pass(m)
	if got := w.ordered(node, m); len(got.Config.Modprobe.Parameters) != 0 || got.State == v1beta1.NodeModuleAbsent {
		t.Errorf("the order is %+v", got)
	}
	w.quiet(m)
	w.must(w.admin.Delete(t.Context(), p))
	w.pass(m)
	if got := w.ordered(node, m); len(got.Config.Modprobe.Parameters) != 1 {
		t.Errorf("the policy has gone, and the order is %+v", got)
	}
}

func TestAPolicyThatIsTriedTellsOnce(t *testing.T) {
	w := newWorld(t)
	w.node("a")
	w.node("b")
	m := w.module("nic")
	w.policy(v1alpha1.PolicyAudit)
	w.pass(m)
	w.pass(m)
	if len(w.carriers(m)) != 2 || len(w.problems(m)) != 0 {
		t.Error("a policy that is only tried denies")
	}
	if n := len(w.events.Events); n != 1 {
		t.Fatalf("%d events", n)
	}
	if text := <-w.events.Events; !strings.Contains(text, "PolicyDenied would be denied: spec.moduleLoader.container.kernelMappings") {
		t.Errorf("event %q", text)
	}
}

// late is a client whose cache has not seen the namespaces.
type late struct{ client.Client }

func (l late) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	return l.Client.Get(ctx, key, o, options...)
}

// TestAPolicyForANewNamespace: the cache may show a Module before its namespace.
func TestAPolicyForANewNamespace(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.policy(v1alpha1.PolicyEnforce)
	behind := late{w.operator}
	w.useBoth(behind, w.operator)
	w.pass(m)
	if told := w.problems(m)[node.Name]; told.Reason != v1beta1.ReasonPolicyDenied || w.config(node) != nil {
		t.Errorf("told %+v", told)
	}
	// Where the API server does not have it either, no label is there to choose by.
	w.useBoth(behind, behind)
	w.pass(m)
	if w.entry(node, m) == nil && len(w.carriers(m)) == 0 {
		t.Error("nothing is delivered")
	}
}
