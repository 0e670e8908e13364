// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// kept is what somebody keeps in a repository: no defaults, nothing empty.
const kept = `
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic}
spec:
  selector: {example.com/nic: "yes"}
  moduleLoader:
    container:
      modprobe: {moduleName: nic}
      kernelMappings:
      - {regexp: "^6", containerImage: "example.com/nic:$KERNEL_VERSION"}
  devicePlugin:
    container: {image: "example.com/plugin:1"}
`

// TestManifestsDoNotDrift: who applies the same manifest again changes nothing, whoever applied it
// first and whatever defaults came in.
func TestManifestsDoNotDrift(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	apply := func(manager string) *v1beta1.Module {
		t.Helper()
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(kept), u); err != nil {
			t.Fatal(err)
		}
		u.SetNamespace(namespace)
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
		m := &v1beta1.Module{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "nic"}, m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := apply("flux")
	again := apply("flux")
	if again.ResourceVersion != first.ResourceVersion {
		t.Error("the same apply has written something")
	}
	other := apply("argocd")
	if other.Generation != first.Generation {
		t.Errorf("generation %d, then %d", first.Generation, other.Generation)
	}
	if diff := cmp.Diff(first.Spec, other.Spec); diff != "" {
		t.Errorf("spec (-first +other):\n%s", diff)
	}
}
