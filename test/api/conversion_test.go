// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/hack/chart/tree"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/testkit/env"
)

// gear is a definition as KMM's chart leaves it, of a group that is nobody's.
const gear = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"gears.conversion.example.com"},
	"spec":{"group":"conversion.example.com","scope":"Cluster",
		"names":{"plural":"gears","singular":"gear","kind":"Gear","listKind":"GearList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
			"clientConfig":{"service":{"namespace":"kmm","name":"webhook","path":"/convert"}}}}}}`

// TestConversionWebhooksDoNotStay: an apply of our definitions never leaves KMM's conversion
// webhook without a word. It is refused until the patch that the operator names has been made.
func TestConversionWebhooksDoNotStay(t *testing.T) {
	files, err := tree.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := files.Objects([]string{"crd"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range ours {
		if strategy, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); err != nil || strategy != "None" {
			t.Errorf("%s says %q about conversion, error %v", crd.GetName(), strategy, err)
		}
	}
	if len(ours) < 4 {
		t.Errorf("%d definitions", len(ours))
	}

	admin := env.Get(t).Admin(t)
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(gear), &crd.Object); err != nil {
		t.Fatal(err)
	}
	next := crd.DeepCopy()
	if err := unstructured.SetNestedMap(next.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	apply := func() error {
		return admin.Patch(t.Context(), next.DeepCopy(), client.RawPatch(types.ApplyPatchType, text), client.FieldOwner("kubectl"),
			client.ForceOwnership)
	}
	if err := admin.Create(t.Context(), crd, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	check(t, apply(), "spec.conversion.webhookClientConfig")
	check(t, admin.Patch(t.Context(), crd, client.RawPatch(types.MergePatchType, []byte(definition.Unconverted))))
	check(t, apply())
	check(t, admin.Delete(t.Context(), crd))
}
