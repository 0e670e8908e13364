// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// kmm is the name by which KMM's program writes.
const kmm = client.FieldOwner("manager")

const target = "kmm.node.kubernetes.io/team.nic.device-plugin-target"

// pluginOfKMM is the DaemonSet that KMM makes for a Module's device plugin.
func pluginOfKMM(m *kmmv1beta1.Module) *appsv1.DaemonSet {
	labels := map[string]string{kmmv1beta1.ModuleNameLabel: m.Name, kmmv1beta1.RoleLabel: kmmv1beta1.RoleDevicePlugin}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name + "-device-plugin-x7k2p", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, kmmv1beta1.GroupVersion.WithKind("Module"))},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Finalizers: []string{kmmv1beta1.PluginPodFinalizer}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{kmmv1beta1.ReadyLabel(m.Namespace, m.Name): "", target: ""},
					Containers: []corev1.Container{{
						Name: "device-plugin", Image: m.Spec.DevicePlugin.Container.Image,
						SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
					}},
					PriorityClassName: "system-node-critical", ServiceAccountName: "default",
				},
			},
		},
	}
}

// TestATakenOverPluginKeepsItsPods: KMM's DaemonSet goes on under its name, and no pod starts anew
// until the Module asks for something else.
func TestATakenOverPluginKeepsItsPods(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*appsv1.DaemonSet)
		strategy appsv1.DaemonSetUpdateStrategyType
	}{
		"as the Module asks": {strategy: appsv1.OnDeleteDaemonSetStrategyType},
		"older than what the Module asks": {
			change:   func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/plugin:v0" },
			strategy: appsv1.RollingUpdateDaemonSetStrategyType,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := env.Get(t)
			admin := e.Admin(t)
			m := module()
			m.Namespace, m.UID = e.Namespace(t), ""
			create(t, admin, m)
			ds := pluginOfKMM(m)
			if test.change != nil {
				test.change(ds)
			}
			if err := admin.Create(t.Context(), ds, kmm); err != nil {
				t.Fatal(err)
			}
			uid := ds.UID
			start(t, e)

			eventually(t, "the DaemonSet is taken over", func(ctx context.Context) (bool, error) {
				err := admin.Get(ctx, client.ObjectKeyFromObject(ds), ds)
				return len(ds.Spec.Template.Spec.InitContainers) == 1, err
			})
			if ds.UID != uid || ds.Spec.UpdateStrategy.Type != test.strategy {
				t.Errorf("UID %s, want %s; update strategy %s, want %s", ds.UID, uid, ds.Spec.UpdateStrategy.Type, test.strategy)
			}
			if f := ds.Spec.Template.Finalizers; len(f) > 0 {
				t.Errorf("new pods have finalizers %v", f)
			}
			selector := map[string]string{kmmv1beta1.ReadyLabel(m.Namespace, m.Name): ""}
			if diff := cmp.Diff(selector, ds.Spec.Template.Spec.NodeSelector); diff != "" {
				t.Errorf("node selector (-want +got):\n%s", diff)
			}
			// Another change shows that the pass before had nothing more to do.
			change(t, admin, m, func() { m.Spec.DevicePlugin.Container.Image = "example.com/plugin:v2" })
			eventually(t, "the new plugin rolls out", func(ctx context.Context) (bool, error) {
				err := admin.Get(ctx, client.ObjectKeyFromObject(ds), ds)
				return ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
					ds.Spec.Template.Spec.Containers[0].Image == "example.com/plugin:v2", err
			})
			change(t, admin, m, func() { m.Spec.DevicePlugin.Container.Image = "example.com/plugin:v1" })
			eventually(t, "and back", func(ctx context.Context) (bool, error) {
				err := admin.Get(ctx, client.ObjectKeyFromObject(ds), ds)
				return ds.Spec.Template.Spec.Containers[0].Image == "example.com/plugin:v1", err
			})
			if ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
				t.Error("pods of the version between are left as they are")
			}
			var all appsv1.DaemonSetList
			if err := admin.List(t.Context(), &all, client.InNamespace(m.Namespace)); err != nil || len(all.Items) != 1 || ds.UID != uid {
				t.Errorf("%d DaemonSets (%v), UID %s, want the one of KMM, %s", len(all.Items), err, ds.UID, uid)
			}
		})
	}
}

// TestDeviceClassesOfKMMAreTakenOver: and go with the Module, as KMM's do.
func TestDeviceClassesOfKMMAreTakenOver(t *testing.T) {
	e := env.Get(t)
	e.NeedsDRA(t)
	admin := e.Admin(t)
	namespace := e.Namespace(t)
	m := driverModule(namespace, namespace+".fast")
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: namespace + ".fast", Labels: map[string]string{
		kmmv1beta1.ModuleNameLabel: m.Name, kmmv1beta1.ModuleNamespaceLabel: namespace,
	}}}
	if err := admin.Create(t.Context(), class, kmm); err != nil {
		t.Fatal(err)
	}
	uid := class.UID
	start(t, e)
	create(t, admin, m)
	eventually(t, "the class is the Module's", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(class), class)
		return cmp.Equal(class.Spec.Selectors, m.Spec.DRA.DeviceClasses[0].Selectors), err
	})
	if class.UID != uid {
		t.Error("the class was made anew: claims that wait for it could miss it")
	}
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}}, true)
	eventually(t, "nothing is in the way", func(ctx context.Context) (bool, error) {
		p, err := told(ctx, admin, m)
		return p.Reason == "", err
	})
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, class, false)
}
