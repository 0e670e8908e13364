// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/operator/release"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// TestNothingIsHeldAfterwards: a Module stays as it is but for the finalizer, one that was deleted
// goes, others' finalizers and orders stay. A second run writes nothing.
func TestNothingIsHeldAfterwards(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	const foreign = "example.com/mine"
	module := func(name string, finalizers ...string) *v1beta1.Module {
		m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
		m.Spec.Selector = map[string]string{"none": "yes"}
		return m
	}
	kept, gone := module("kept", foreign, v1beta1.ModuleFinalizer), module("gone", v1beta1.ModuleFinalizer)
	order := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: namespace, Finalizers: []string{nodeplan.OrdersFinalizer}}}
	for _, o := range []client.Object{kept, gone, order} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}

	released, why, err := release.All(t.Context(), admin, newClock(nil))
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	if diff := cmp.Diff(map[string]int{"Module": 2, "NodeModulesConfig": 1}, released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		object client.Object
		then   []string
	}{{kept, []string{foreign}}, {order, nil}} {
		version := tc.object.GetGeneration()
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tc.object), tc.object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.then, tc.object.GetFinalizers()); diff != "" || tc.object.GetGeneration() != version {
			t.Errorf("%s has other finalizers, or another spec (-want +got):\n%s", tc.object.GetName(), diff)
		}
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted Module is still there: %v", err)
	}
	if released, _, err := release.All(t.Context(), admin, newClock(nil)); err != nil || len(released) != 0 {
		t.Errorf("the second run releases %v: %v", released, err)
	}
}
