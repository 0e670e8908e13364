// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/drover-project/drover/internal/testkit/env"
)

// TestDeviceTaints shows what docs/design/0011-dra.md says of an API server as it comes: it keeps
// the taints that a driver puts on its own devices, and serves what others taint devices by from
// Kubernetes 1.37 on. Package devicetaint tests what Drover does with it.
func TestDeviceTaints(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	_, err := admin.RESTMapper().RESTMapping(schema.GroupKind{Group: resourcev1.GroupName, Kind: "ResourceSlice"}, "v1")
	if meta.IsNoMatchError(err) {
		t.Log("Kubernetes before 1.34: there is nothing to taint")
		return
	}
	name := e.Namespace(t)
	taint := resourcev1.DeviceTaint{Key: "drover.dev/unload", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "d0", Taints: []resourcev1.DeviceTaint{taint}}},
		},
	}
	if err := admin.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), slice); err != nil {
			t.Error(err)
		}
	})
	if got := slice.Spec.Devices[0].Taints; len(got) != 1 || got[0].Key != taint.Key || got[0].Effect != taint.Effect {
		t.Errorf("the API server kept the taints %v", got)
	}
	mapping, err := admin.RESTMapper().RESTMapping(schema.GroupKind{Group: resourcev1.GroupName, Kind: "DeviceTaintRule"})
	if err != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	release := e.KubeletVersion(t)
	if want := version.MustParseGeneric(release).AtLeast(version.MajorMinor(1, 37)); (err == nil) != want {
		t.Errorf("Kubernetes %s serves DeviceTaintRule as %+v (%v): say so in the note", release, mapping, err)
	}
}
