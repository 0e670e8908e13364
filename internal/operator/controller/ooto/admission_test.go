// SPDX-License-Identifier: Apache-2.0

package ooto_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOotoAdmission: what is invalid in the proposal, and what else makes no sense, is refused at
// once.
func TestOotoAdmission(t *testing.T) {
	s := newScene(t)
	mapping := func(fields map[string]any) func(map[string]any) {
		return func(c map[string]any) { c["kernelMappings"] = []any{fields} }
	}
	cases := map[string]struct {
		given func(container map[string]any)
		spec  func(spec map[string]any)
		then  string
	}{
		"as it is":              {},
		"a boolean label":       {spec: func(o map[string]any) { o["selector"] = map[string]any{"a": true} }, then: "spec.selector.a"},
		"a regexp that is none": {given: mapping(map[string]any{"regexp": "("}), then: "regexp must be a valid RE2 regular expression"},
		"both ways to match":    {given: mapping(map[string]any{"regexp": "a", "literal": "a"}), then: "exactly one of regexp and literal"},
		"no way to match":       {given: mapping(map[string]any{"containerImage": "a:1"}), then: "exactly one of regexp and literal"},
		"no mapping":            {given: func(c map[string]any) { c["kernelMappings"] = []any{} }, then: "kernelMappings"},
		"no image": {given: func(c map[string]any) { delete(c, "containerImage") }, then: "every kernel mapping needs a " +
			"containerImage"},
		"no tag": {given: func(c map[string]any) { c["containerImage"] = "a" }, then: "must name a tag or a digest"},
		"nothing to build from": {given: func(c map[string]any) {
			delete(c, "build")
			mapping(map[string]any{"regexp": "a", "build": map[string]any{}})(c)
		}, then: "needs a dockerfile"},
		"no key": {given: mapping(map[string]any{"regexp": "a", "sign": map[string]any{
			"keySecret": nil, "certSecret": map[string]any{"name": "c"}, "filesToSign": []any{"/opt/a.ko"},
		}}), then: "keySecret"},
		"nothing to sign": {given: mapping(map[string]any{"regexp": "a", "sign": map[string]any{
			"keySecret": map[string]any{"name": "k"}, "certSecret": map[string]any{"name": "c"}, "filesToSign": []any{},
		}}), then: "filesToSign"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := s.sample()
			spec, _ := object.Object["spec"].(map[string]any)
			container, _, err := unstructured.NestedFieldNoCopy(spec, "driverContainer", "container")
			if err != nil {
				t.Fatal(err)
			}
			if fields, ok := container.(map[string]any); ok && tc.given != nil {
				tc.given(fields)
			}
			if tc.spec != nil {
				tc.spec(spec)
			}
			err = s.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict"))
			switch {
			case tc.then == "" && err != nil:
				t.Error(err)
			case tc.then != "" && (err == nil || !strings.Contains(err.Error(), tc.then)):
				t.Errorf("error %v; it should have %q", err, tc.then)
			}
		})
	}
}

// TestOotoEditorIsNotAggregated: whoever edits pods in a namespace may not put code into kernels by
// this group either.
func TestOotoEditorIsNotAggregated(t *testing.T) {
	s := newScene(t)
	role := &rbacv1.ClusterRole{}
	s.must(s.admin.Get(t.Context(), client.ObjectKey{Name: "drover-ooto-module-editor"}, role))
	if diff := cmp.Diff(map[string]string{"app.kubernetes.io/part-of": "drover"}, role.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
