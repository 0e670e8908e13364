// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Redefine changes what lies at a path of a CustomResourceDefinition's schema, such as
// properties.status, until the test ends.
func (e *Env) Redefine(t *testing.T, name, pointer string, edit func(parent map[string]any, key string)) {
	t.Helper()
	admin := e.Admin(t)
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
		t.Fatal(err)
	}
	before := crd.DeepCopy()
	versions := crd.Object["spec"].(map[string]any)["versions"].([]any) //nolint:errcheck,forcetypeassert // the shape of every CRD
	// The newest version is the one that we write.
	at := versions[len(versions)-1].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any) //nolint:errcheck,forcetypeassert // the shape of every CRD
	path := strings.Split(pointer, ".")
	for _, key := range path[:len(path)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			t.Fatalf("%s has no %s of %s", name, key, pointer)
		}
		at = next
	}
	edit(at, path[len(path)-1])
	if err := admin.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		before.SetResourceVersion("")
		if err := admin.Get(context.Background(), client.ObjectKey{Name: name}, crd); err != nil {
			t.Fatal(err)
		}
		before.SetResourceVersion(crd.GetResourceVersion())
		if err := admin.Update(context.Background(), before); err != nil {
			t.Fatal(err)
		}
	})
}
