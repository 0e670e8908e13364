// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// served waits until a Module that is made now has its DaemonSet. Every other Module's pass was
// queued before.
func served(t *testing.T, admin client.Client, namespace, name string) {
	t.Helper()
	other := module()
	other.Namespace, other.Name, other.UID = namespace, name, ""
	if err := admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-device-plugin"}}, true)
}

// TestAReleaseDoesNotRestartDevicePlugins: the image of the waiting container comes with the
// release, and nothing else of the DaemonSet does.
func TestAReleaseDoesNotRestartDevicePlugins(t *testing.T) {
	const next = "example.com/drover-agent:v2"
	e := env.Get(t)
	admin := e.Admin(t)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	images := func() [2]string {
		spec := &daemonSet.Spec.Template.Spec
		return [2]string{spec.InitContainers[0].Image, spec.Containers[0].Image}
	}
	t.Run("one release", func(t *testing.T) {
		start(t, e)
		exists(t, admin, daemonSet, true)
	})
	t.Run("the next", func(t *testing.T) {
		startWith(t, e, next)
		served(t, admin, m.Namespace, "other")
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(daemonSet), daemonSet); err != nil {
			t.Fatal(err)
		}
		if daemonSet.Generation != 1 {
			t.Errorf("the DaemonSet was changed: generation %d, images %v", daemonSet.Generation, images())
		}

		// Somebody's edit is undone, and a change of the Module's rolls the pods anyway: both bring the
		// new image.
		change(t, admin, m, func() { m.Spec.DevicePlugin.Container.Image = "example.com/plugin:v2" })
		eventually(t, "both images change", func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
			return images() == [2]string{next, "example.com/plugin:v2"}, err
		})
	})
	t.Run("an edit", func(t *testing.T) {
		start(t, e)
		daemonSet.Spec.Template.Spec.InitContainers[0].Image = "example.com/somebody:else"
		if err := admin.Update(t.Context(), daemonSet); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the image that nobody released goes", func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
			return images()[0] == agentImage, err
		})
	})
}

// TestPausedModuleKeepsItsDevicePlugin: neither a change nor a removal reaches the cluster until
// the pause ends, unless the Module leaves.
func TestPausedModuleKeepsItsDevicePlugin(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	exists(t, admin, daemonSet, true)
	before := daemonSet.DeepCopy()
	pause := func() { m.Annotations = map[string]string{kmmv1beta1.PausedAnnotation: ""} }
	resume := func() { m.Annotations = nil }

	change(t, admin, m, func() { pause(); m.Spec.DevicePlugin.Container.Image = "example.com/plugin:v2" })
	served(t, admin, m.Namespace, "second")
	change(t, admin, m, func() { m.Spec.DevicePlugin = nil })
	served(t, admin, m.Namespace, "third")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(daemonSet), daemonSet); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Spec, daemonSet.Spec); diff != "" || daemonSet.DeletionTimestamp != nil {
		t.Errorf("changed while paused (-before +now):\n%s", diff)
	}

	// Only the annotation changes.
	change(t, admin, m, resume)
	exists(t, admin, daemonSet, false)

	change(t, admin, m, func() { m.Spec.DevicePlugin = module().Spec.DevicePlugin })
	exists(t, admin, daemonSet, true)
	change(t, admin, m, func() { pause(); m.Finalizers = []string{kmmv1beta1.ModuleFinalizer} })
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, daemonSet, false)
	change(t, admin, m, func() { m.Finalizers = nil })
}
