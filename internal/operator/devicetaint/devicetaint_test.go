// SPDX-License-Identifier: Apache-2.0

package devicetaint_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/internal/operator/devicetaint"
	"github.com/drover-project/drover/internal/testkit/env"
)

// release of Kubernetes, if it is not the newest: an older API server does not start with a feature
// gate that it does not know.
var release = os.Getenv("KUBERNETES")

func TestMain(m *testing.M) {
	var args map[string]string
	if release == "1.36" {
		args = map[string]string{"runtime-config": "resource.k8s.io/v1beta2=true", "feature-gates": "DRADeviceTaintRules=true"}
	}
	os.Exit(env.MainWith(m, args))
}

// kindOf is the kind of rules that the API server serves. What Drover does without one is tested
// where Modules with DRA drivers are.
func kindOf(t *testing.T, admin client.Client) schema.GroupVersionKind {
	t.Helper()
	kind, err := devicetaint.Kind(admin.RESTMapper())
	switch {
	case err != nil:
		t.Fatal(err)
	case kind == nil && release != "":
		t.Skipf("Kubernetes %s serves no DeviceTaintRules", release)
	case kind == nil:
		t.Fatal("the API server serves no DeviceTaintRules")
	}
	return *kind
}

// on is a set of nodes.
func on(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// publish is what a driver does for the devices of a node.
func publish(t *testing.T, admin client.Client, name, driver, node, pool string) {
	t.Helper()
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "d0"}},
		},
	}
	if err := admin.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), slice); err != nil {
			t.Error(err)
		}
	})
}

// TestKeep: the rules are those of the nodes in change, whatever process made them, and each names
// the driver's pools there.
func TestKeep(t *testing.T) {
	e := env.Get(t)
	admin, operator := e.Admin(t), e.Client(t, e.Config(t, env.Operator))
	kind := kindOf(t, admin)
	module := types.NamespacedName{Namespace: e.Namespace(t), Name: "nic"}
	driver := module.Namespace + ".example.com"
	a, b, c := module.Namespace+"-a", module.Namespace+"-b", module.Namespace+"-c"
	publish(t, admin, a, driver, a, a)
	publish(t, admin, b, driver, b, "left")
	publish(t, admin, b+"-2", driver, b, "right")
	publish(t, admin, b+"-other", "other."+driver, b, "other")
	fresh := func() *devicetaint.Rules { return devicetaint.New(operator, kind) }
	rules := fresh()
	for _, step := range []struct {
		name        string
		rules       *devicetaint.Rules
		driver      string
		begin, stay map[string]bool
		pools       []string // that are tainted afterwards
	}{
		{"nothing is in change", rules, driver, nil, nil, nil},
		{"a node's turn has come", rules, driver, on(a), nil, []string{a}},
		{"it goes on, and another begins", rules, driver, on(b), on(a), []string{"left", "right", a}},
		{"again", rules, driver, on(b), on(a), []string{"left", "right", a}},
		{"one without devices begins", rules, driver, on(c), on(b, a), []string{"left", "right", a}},
		{"one is done", rules, driver, nil, on(b), []string{"left", "right"}},
		{"only what was tainted stays tainted", rules, driver, nil, on(a, b), []string{"left", "right"}},
		{"another process, and all are done", fresh(), driver, nil, nil, nil},
		{"again", fresh(), driver, on(a), nil, []string{a}},
		{"another driver", fresh(), "other." + driver, nil, on(a), nil},
	} {
		if err := step.rules.Keep(t.Context(), module, step.driver, step.begin, step.stay); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		found := &unstructured.UnstructuredList{}
		found.SetGroupVersionKind(kind)
		if err := admin.List(t.Context(), found); err != nil {
			t.Fatal(err)
		}
		pools := map[string]bool{}
		for i := range found.Items {
			var rule resourcev1.DeviceTaintRule
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &rule); err != nil {
				t.Fatal(err)
			}
			if s := rule.Spec.DeviceSelector; s == nil || s.Driver == nil || *s.Driver != driver || s.Pool == nil || s.Device != nil {
				t.Fatalf("%s: the rule selects %+v", step.name, s)
			} else {
				pools[*s.Pool] = true
			}
			if taint := rule.Spec.Taint; taint.Key != devicetaint.Key || taint.Effect != resourcev1.DeviceTaintEffectNoSchedule {
				t.Errorf("%s: the taint is %+v", step.name, taint)
			}
		}
		if got := slices.Sorted(maps.Keys(pools)); !slices.Equal(got, step.pools) {
			t.Errorf("%s: tainted are the pools %v, want %v", step.name, got, step.pools)
		}
	}
}

// TestWhereRulesCannotBeListed: a Module without a driver does not wait for the right to do so. Any
// pass that fails keeps a Module from being deleted.
func TestWhereRulesCannotBeListed(t *testing.T) {
	e := env.Get(t)
	kind := kindOf(t, e.Admin(t))
	operator := interceptor.NewClient(e.Client(t, e.Config(t, env.Operator)), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "devicetaintrules"}, "", errors.New("no such right"))
		},
	})
	rules, module := devicetaint.New(operator, kind), types.NamespacedName{Namespace: "team", Name: "nic"}
	if err := rules.Keep(t.Context(), module, "", nil, nil); err != nil {
		t.Errorf("a Module without a driver: %v", err)
	}
	if err := rules.Keep(t.Context(), module, "example.com", nil, nil); !apierrors.IsForbidden(err) {
		t.Errorf("a Module with a driver: %v, want that it is forbidden: a rule of it could stay for ever", err)
	}
}

// TestAForeignRuleStays: labels alone make no rule ours.
func TestAForeignRuleStays(t *testing.T) {
	e := env.Get(t)
	admin, operator := e.Admin(t), e.Client(t, e.Config(t, env.Operator))
	kind := kindOf(t, admin)
	module := types.NamespacedName{Namespace: e.Namespace(t), Name: "nic"}
	typed := &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: module.Namespace, Labels: map[string]string{
			"kmm.node.kubernetes.io/module.name": module.Name, "kmm.node.kubernetes.io/module.namespace": module.Namespace,
		}},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: new("a")},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/mine", Effect: resourcev1.DeviceTaintEffectNoSchedule},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	rule := &unstructured.Unstructured{Object: content}
	rule.SetGroupVersionKind(kind)
	if err := admin.Create(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), rule); err != nil {
			t.Error(err)
		}
	})
	if err := devicetaint.New(operator, kind).Keep(t.Context(), module, "example.com", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rule), rule); err != nil {
		t.Error(err)
	}
}
