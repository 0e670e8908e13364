// SPDX-License-Identifier: Apache-2.0

package operators

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/kit/kittest"
)

const (
	// upstreamVariable names a folder with the definitions of upstream's Kernel Module Management; the default is beside the repository.
	upstreamVariable = "DROVER_UPSTREAM_CRDS"
	upstreamDefault  = "../../../shared/upstream-crds"
)

// TestUpstreamTakesTheChildren: where upstream's own definition of Module is served and no Drover runs, the same programs start, and each Module that
// they make has upstream's fields only.
func TestUpstreamTakesTheChildren(t *testing.T) {
	dir := os.Getenv(upstreamVariable)
	if dir == "" {
		dir = upstreamDefault
	}
	modules := filepath.Join(dir, "kmm.sigs.x-k8s.io_modules.yaml")
	if _, err := os.Stat(modules); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("upstream's definitions are not in %s; %s names another folder", dir, upstreamVariable)
	}
	c := kittest.Start(t, kittest.Options{WithoutDrover: true, Manifests: append(definitions(), modules), Operators: processes()})
	for _, name := range []string{"deviceconfig", "ptemplate", "ptemplate_defaults"} {
		t.Run(name, func(t *testing.T) {
			result.UpstreamChildren++
			o := example(t, name, c.Namespace(t))
			c.Create(t, o)
			var children []unstructured.Unstructured
			eventually(t, "it has a Module", func(context.Context) error {
				if children = childrenOf(t, c, o, kinds[0].kind); len(children) != 1 {
					return fmt.Errorf("it has %d", len(children))
				}
				return nil
			})
			accepted(t, c, &children[0])
			result.UpstreamAccepted++
		})
	}
}

// accepted objects to a Module of which upstream's definition lost or refused a part. What the operators write by server-side apply is refused as
// a whole if one field is not upstream's: that is tried, too.
func accepted(t *testing.T, c *kittest.Cluster, module *unstructured.Unstructured) {
	t.Helper()
	again := &unstructured.Unstructured{Object: map[string]any{"spec": module.Object["spec"]}}
	again.SetGroupVersionKind(module.GroupVersionKind())
	again.SetNamespace(module.GetNamespace())
	again.SetName(module.GetName() + "-again")
	if err := c.Client.Create(t.Context(), again.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		t.Errorf("upstream's definition refuses it: %v", err)
	}
	if err := unstructured.SetNestedField(again.Object, "x", "spec", "moduleLoader", "container", "notUpstreams"); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("test"), client.DryRunAll); err == nil {
		t.Error("server-side apply takes a field that upstream does not have")
	}
}
