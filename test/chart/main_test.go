// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

func parse(t *testing.T, documents ...string) objects {
	t.Helper()
	all := objects{}
	for _, text := range documents {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		all[tree.Name(o)] = o
	}
	return all
}

// TestDifferencesAreTold: a missing object, one too many, another field, and what an uninstall
// keeps against the rule or deletes against it.
func TestDifferencesAreTold(t *testing.T) {
	const (
		role  = `{kind: ClusterRole, metadata: {name: a}, rules: [1]}`
		other = `{kind: ClusterRole, metadata: {name: a}, rules: [2]}`
		more  = `{kind: ClusterRole, metadata: {name: b}}`
		kept  = `{kind: ClusterRole, metadata: {name: a, annotations: {helm.sh/resource-policy: keep}}, rules: [1]}`
		crd   = `{kind: CustomResourceDefinition, metadata: {name: c, annotations: {x: z}}}`
		goes  = crd
		hooks = `{kind: Job, metadata: {name: d, annotations: {helm.sh/hook: post-delete}}}`
		stays = `{kind: CustomResourceDefinition, metadata: {name: c, annotations: {x: z, helm.sh/resource-policy: keep}}}`
	)
	for _, tc := range []struct {
		name      string
		want, got []string
		problems  []string
	}{
		{"the same", []string{role, crd}, []string{role, stays}, nil},
		{"a field", []string{role}, []string{other}, []string{"ClusterRole a (-kustomize +chart)"}},
		{"missing", []string{role, more}, []string{role}, []string{"ClusterRole b: the chart has no such object"}},
		{"too many", []string{role}, []string{role, more}, []string{"ClusterRole b: kustomize has no such object"}},
		{"a hook", []string{role}, []string{role, hooks}, nil},
		{"a definition goes", []string{crd}, []string{goes}, []string{"CustomResourceDefinition c: is kept by an uninstall: false"}},
		{"a role stays", []string{role}, []string{kept}, []string{"ClusterRole a: is kept by an uninstall: true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var heads []string
			for _, p := range compare(parse(t, tc.want...), parse(t, tc.got...)) {
				head, _, _ := strings.Cut(p, ":\n")
				heads = append(heads, head)
			}
			if diff := cmp.Diff(tc.problems, heads); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDamageIsADifference, whichever object it meets.
func TestDamageIsADifference(t *testing.T) {
	const role = `{kind: ClusterRole, metadata: {name: a}}`
	damaged := parse(t, role)
	damaged.damage()
	if len(compare(parse(t, role), damaged)) != 1 {
		t.Error("nothing differs")
	}
}

// TestSettingsAreJudged by the field that must change: one that was so already, or is not, fails.
func TestSettingsAreJudged(t *testing.T) {
	const name, three = "Deployment a", `{kind: Deployment, metadata: {name: a, labels: {x/y: z}}, spec: {replicas: 3, args: [p, q]}}`
	one := strings.Replace(three, "3", "1", 1)
	for _, tc := range []struct {
		name          string
		without, with string
		row           setting
		told          string
	}{
		{"changed", one, three, setting{object: name, at: "/spec/replicas", want: "3"}, ""},
		{"was so", three, three, setting{object: name, at: "/spec/replicas", want: "3"}, "without it, too"},
		{"is not so", one, one, setting{object: name, at: "/spec/replicas", want: "3"}, "is 1, want 3"},
		{"element", strings.Replace(three, ", q", "", 1), three, setting{object: name, at: "/spec/args/*", want: `"q"`}, ""},
		{"no element", one, three, setting{object: name, at: "/spec/args/*", want: `"r"`}, "want r"},
		{"index", strings.Replace(three, ", q", "", 1), three, setting{object: name, at: "/spec/args/1", want: `"q"`}, ""},
		{"label", "{kind: Service}", three, setting{object: name, at: "/metadata/labels/x~1y", want: `"z"`}, ""},
		{"comes", "{kind: Service}", three, setting{object: name, want: "true"}, ""},
		{"does not go", three, three, setting{object: name, want: "false"}, "is true, want false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			told, err := tc.row.judge(parse(t, tc.without), parse(t, tc.with))
			if err != nil || !strings.Contains(told, tc.told) || (told == "") != (tc.told == "") {
				t.Errorf("told %q (%v), want %q", told, err, tc.told)
			}
		})
	}
}

// TestEveryValueHasARow in the table, and every row a value.
func TestEveryValueHasARow(t *testing.T) {
	values, err := leaves("../../" + chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(values) < 50 {
		t.Errorf("found %d values only", len(values))
	}
	for _, p := range missing(values, table()) {
		t.Error(p)
	}
	if diff := cmp.Diff(2, len(missing([]string{"new.value"}, []setting{{value: "old.value"}}))); diff != "" {
		t.Errorf("a value without a row and a row without a value (-want +got):\n%s", diff)
	}
}
