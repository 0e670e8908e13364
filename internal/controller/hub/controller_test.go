// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	controller "github.com/drover-project/drover/internal/controller/hub"
)

// TestTwoClustersGetTheirModules: one image for each kernel, a Module without a build when they are there, and what the clusters say.
func TestTwoClustersGetTheirModules(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a", kernel), w.cluster("b", another, kernel)
	m := w.module()
	w.pass(m)
	if images := w.images(); len(images) != 2 {
		t.Fatalf("%d images for two kernels", len(images))
	}
	if w.work(a) != nil || w.work(b) != nil {
		t.Fatal("a Module left before its images were there")
	}
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonBuilding, "0 of 2 clusters")
	w.make()
	w.pass(m)
	for cluster, kernels := range map[string]int{a: 1, b: 2} {
		work := w.work(cluster)
		if work == nil {
			t.Fatalf("cluster %s has nothing", cluster)
		}
		text := string(work.Spec.Workload.Manifests[0].Raw)
		if n := strings.Count(text, `"literal"`); n != kernels {
			t.Errorf("cluster %s has %d kernels: %s", cluster, n, text)
		}
		if strings.Contains(text, `"build"`) || strings.Contains(text, w.name+`"}`) && strings.Contains(text, "dockerfileConfigMap") {
			t.Errorf("a build leaves the hub: %s", text)
		}
	}
	w.answer(a, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.answer(b, metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol, "node-7: no symbol")
	w.pass(m)
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol, "cluster "+b+": node-7")
	if s := m.Status; s.NumberDesired != 2 || s.NumberApplied != 2 || s.NumberReady != 1 || s.ModuleLoader.AvailableNumber != 4 || len(s.Worst) != 1 {
		text, _ := json.Marshal(s)
		t.Errorf("status %s", text)
	}
	w.answer(b, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.pass(m)
	w.ready(m, metav1.ConditionTrue, v1beta1.ReasonReady, "2 clusters")
}

// TestASecondPassWritesNothing, and neither does one of another process.
func TestASecondPassWritesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	w.answer(a, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.pass(m)
	before, work, image := m.ResourceVersion, w.work(a).ResourceVersion, w.images()[0].ResourceVersion
	w.pass(m)
	if m.ResourceVersion != before || w.work(a).ResourceVersion != work || w.images()[0].ResourceVersion != image {
		t.Error("a pass without a change wrote something")
	}
}

// TestADeselectedClusterLosesItsModule, and one that comes back gets it again.
func TestADeselectedClusterLosesItsModule(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a", kernel), w.cluster("b", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	c := &clusterv1.ManagedCluster{}
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: b}, c))
	c.Labels["world"] = "another"
	w.must(w.admin.Update(t.Context(), c))
	w.pass(m)
	if w.work(b) != nil || w.work(a) == nil {
		t.Error("the wrong cluster lost its Module, or none")
	}
	if m.Status.NumberDesired != 1 {
		t.Errorf("%d clusters", m.Status.NumberDesired)
	}
}

// TestADeletedOneLeavesNothing: works and images go, then it does.
func TestADeletedOneLeavesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.pass(m)
	if w.work(a) != nil || len(w.images()) > 0 {
		t.Errorf("what is left: %v, %d images", w.work(a), len(w.images()))
	}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), &hubv1beta1.ManagedClusterModule{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the ManagedClusterModule: %v", err)
	}
	_ = controller.Finalizer
}
