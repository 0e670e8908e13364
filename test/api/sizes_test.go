// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestParametersAreBounded: they are written to every node's object, twice.
func TestParametersAreBounded(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	const field = "spec.moduleLoader.container.modprobe.parameters"
	cases := map[string]struct {
		given []string
		then  []string
	}{
		"as many as may be":  {given: slices.Repeat([]string{"a=" + strings.Repeat("x", 1022)}, 128)},
		"one more":           {given: slices.Repeat([]string{"a=b"}, 129), then: []string{field, "128"}},
		"one that is longer": {given: []string{"a=" + strings.Repeat("x", 1023)}, then: []string{field, "1024"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			m := valid(func(m *v1beta1.Module) { container(m).Modprobe.Parameters = test.given })
			m.Namespace = namespace
			check(t, admin.Create(t.Context(), m, client.DryRunAll), test.then...)
		})
	}
}

// TestQuantitiesAreBounded: who reads a quantity counts out its exponent, so that one of ten digits
// in a Module would stop the operator for everybody.
func TestQuantitiesAreBounded(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	const field = "spec.devicePlugin.container.resources.limits.cpu"
	for quantity, then := range map[string][]string{
		"2": nil, "500m": nil, "1.5": nil, "4Gi": nil, "1e3": nil, "12E-3": nil,
		"1E-2147483648": {field}, "1e2147483647": {field}, "1E-100": {field}, "0.1e.5": {field},
	} {
		t.Run(quantity, func(t *testing.T) {
			m := valid(func(m *v1beta1.Module) {
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
			})
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
			if err != nil {
				t.Fatal(err)
			}
			// As text: a Go program that knows the type reads it, too.
			o := &unstructured.Unstructured{Object: content}
			if err := unstructured.SetNestedField(o.Object, quantity, strings.Split(field, ".")...); err != nil {
				t.Fatal(err)
			}
			o.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("Module"))
			o.SetNamespace(namespace)
			check(t, admin.Create(t.Context(), o, client.DryRunAll), then...)
		})
	}
}

// TestANodeCannotReportWithoutEnd: what it reports is read by everybody.
func TestANodeCannotReportWithoutEnd(t *testing.T) {
	e := env.Get(t)
	name := e.Namespace(t) + "-node"
	admin := e.Admin(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, object := range []client.Object{node, nmc} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
	agent := e.Client(t, e.AgentConfig(t, name))
	for count, then := range map[int][]string{512: nil, 513: {"status.modules", "512"}} {
		report := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch := client.MergeFrom(report.DeepCopy())
		for i := range count {
			report.Status.Modules = append(report.Status.Modules, v1beta1.NodeModuleStatus{
				ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: fmt.Sprintf("made-up-%d", i), ServiceAccountName: "default"},
			})
		}
		check(t, agent.Status().Patch(t.Context(), report, patch, client.DryRunAll), then...)
	}
}
