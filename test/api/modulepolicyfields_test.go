// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/testkit/env"
)

func TestModulePolicyFields(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	for name, tc := range map[string]struct {
		spec string
		then []string
	}{
		"the least":                      {spec: `{"mode":"Audit"}`},
		"no mode":                        {spec: `{"load":"Deny"}`, then: []string{"spec.mode"}},
		"another mode":                   {spec: `{"mode":"Warn"}`, then: []string{"spec.mode"}},
		"another permission":             {spec: `{"mode":"Audit","load":"No"}`, then: []string{"spec.load"}},
		"no modules, which would be any": {spec: `{"mode":"Audit","modules":[]}`, then: []string{"spec.modules"}},
		"no images, which would be any":  {spec: `{"mode":"Audit","images":[]}`, then: []string{"spec.images"}},
		"a * within":                     {spec: `{"mode":"Audit","modules":["a*b"]}`, then: []string{"spec.modules[0]"}},
		"every image":                    {spec: `{"mode":"Audit","images":["*"]}`},
		"a registry":                     {spec: `{"mode":"Audit","images":["r.example.com:5000/*"]}`},
		"the beginning of a registry":    {spec: `{"mode":"Audit","images":["r.example.com*"]}`, then: []string{"spec.images[0]"}},
		"a * within an image":            {spec: `{"mode":"Audit","images":["*.example.com/*"]}`, then: []string{"spec.images[0]"}},
		"a variable":                     {spec: `{"mode":"Audit","images":["r/nic:$KERNEL_X"]}`, then: []string{"spec.images[0]"}},
		"no parameters":                  {spec: `{"mode":"Audit","parameters":{}}`},
		"an operator without values": {
			spec: `{"mode":"Audit","nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`,
			then: []string{"spec.nodeSelector.matchExpressions[0]", "need at least one"}},
		"values without their operator": {
			spec: `{"mode":"Audit","nodeSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`,
			then: []string{"spec.nodeSelector.matchExpressions[0]", "belong to the operators"}},
		"another operator": {
			spec: `{"mode":"Audit","namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}}`,
			then: []string{"spec.namespaceSelector.matchExpressions[0].operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &unstructured.Unstructured{}
			text := `{"apiVersion":"drover.dev/v1alpha1","kind":"ModulePolicy","metadata":{"generateName":"p-"},"spec":` + tc.spec + `}`
			if err := json.Unmarshal([]byte(text), &p.Object); err != nil {
				t.Fatal(err)
			}
			check(t, admin.Create(t.Context(), p, client.DryRunAll), tc.then...)
		})
	}
}

// TestTriedAndEnforcedSayTheSame: the two admission policies differ in the mode, and in what
// follows.
func TestTriedAndEnforcedSayTheSame(t *testing.T) {
	content, err := os.ReadFile("../../config/policies/module-policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(content), "\n---\n")
	if len(documents) != 4 {
		t.Fatalf("%d documents", len(documents))
	}
	var enforce, tried admissionv1.ValidatingAdmissionPolicySpec
	for document, into := range map[string]*admissionv1.ValidatingAdmissionPolicySpec{
		documents[0]: &enforce, strings.ReplaceAll(documents[2], "params.spec.mode == 'Audit'", "params.spec.mode == 'Enforce'"): &tried,
	} {
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		*into = policy.Spec
	}
	if a, b := enforce.String(), tried.String(); a != b || len(enforce.Validations) == 0 {
		t.Errorf("enforced:\n%s\ntried:\n%s", a, b)
	}
}
