// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// driverModule is a Module with a DRA driver and DeviceClasses of these names.
func driverModule(namespace string, classes ...string) *kmmv1beta1.Module {
	m := module(driver)
	m.Namespace, m.UID = namespace, ""
	m.Spec.DRA.DeviceClasses = nil
	for _, name := range classes {
		m.Spec.DRA.DeviceClasses = append(m.Spec.DRA.DeviceClasses, deviceClass(name))
	}
	return m
}

func deviceClass(name string) kmmv1beta1.DeviceClassSpec {
	return kmmv1beta1.DeviceClassSpec{
		Name:      name,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == 'nic.example.com'"}}},
		Config: []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{
				Driver: "nic.example.com", Parameters: runtime.RawExtension{Raw: []byte(`{ "z": 1,  "a": [true] }`)},
			},
		}}},
	}
}

func TestDeviceClassLifecycle(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	namespace := e.Namespace(t)
	m := driverModule(namespace, namespace+".fast", namespace+".slow")
	began := e.Mark(t)
	create(t, admin, m)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: meta}, true)
	fast, slow := &resourcev1.DeviceClass{}, &resourcev1.DeviceClass{}
	fast.Name, slow.Name = namespace+".fast", namespace+".slow"
	exists(t, admin, fast, true)
	exists(t, admin, slow, true)
	labels := map[string]string{
		"kmm.node.kubernetes.io/module.name": "nic", "kmm.node.kubernetes.io/module.namespace": namespace, "app.kubernetes.io/part-of": "drover",
	}
	if diff := cmp.Diff(labels, fast.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	selector := m.Spec.DRA.DeviceClasses[0].Selectors

	// An edit by hand is undone with one write; that this takes one shows that the pass before had
	// nothing to do.
	logged(t, e, began, namespace)
	mark := e.Mark(t)
	fast.Spec.Selectors = nil
	if err := admin.Update(t.Context(), fast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edit is undone", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(fast), fast)
		return cmp.Equal(fast.Spec.Selectors, selector), err
	})
	want := map[env.Write]int{{Agent: "drover-operator", Verb: "update", Resource: "deviceclasses"}: 1}
	if diff := cmp.Diff(want, e.Writes(t, mark, namespace, fast.Name, slow.Name)); diff != "" {
		t.Errorf("writes for one edit (-want +got):\n%s", diff)
	}

	// One that is no longer asked for goes; one that somebody deletes comes back.
	change(t, admin, m, func() { m.Spec.DRA.DeviceClasses = m.Spec.DRA.DeviceClasses[:1] })
	exists(t, admin, slow, false)
	if err := admin.Delete(t.Context(), fast); err != nil {
		t.Fatal(err)
	}
	old := fast.UID
	eventually(t, "the class is made again", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(fast), fast)
		return err == nil && fast.UID != old, client.IgnoreNotFound(err)
	})

	change(t, admin, m, func() { m.Spec.DRA = nil })
	exists(t, admin, fast, false)
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: meta}, false)
	e.AssertNoMasters(t)
}

// TestForeignDeviceClassesAreNotTouched: who may write a Module in a namespace must not get at
// objects of the cluster.
func TestForeignDeviceClassesAreNotTouched(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	namespace := e.Namespace(t)
	foreign := map[string]*resourcev1.DeviceClass{
		"bare": {},
		"disguise": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kmmv1beta1.ModuleNameLabel: "nic",
			kmmv1beta1.ModuleNamespaceLabel: namespace}}},
		"other": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kmmv1beta1.ModuleNameLabel: "nic",
			kmmv1beta1.ModuleNamespaceLabel: "elsewhere"}}},
	}
	var names []string
	for _, kind := range []string{"bare", "disguise", "other"} {
		class := foreign[kind]
		class.Name = namespace + "." + kind
		class.Spec.ExtendedResourceName = new("example.com/" + kind)
		create(t, admin, class)
		names = append(names, class.Name)
	}
	m := driverModule(namespace, append(names, namespace+".own")...)
	m.Finalizers = []string{kmmv1beta1.ModuleFinalizer}
	create(t, admin, m)
	own := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: namespace + ".own"}}
	exists(t, admin, own, true)
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}}, true)
	eventually(t, "the conflict is reported", func(ctx context.Context) (bool, error) {
		p, err := told(ctx, admin, m)
		return p.Reason == kmmv1beta1.ReasonDeviceClassConflict && strings.Contains(p.Message, strings.Join(names, ", ")), err
	})

	// What the Module no longer names, and the Module's end, do not touch them either.
	change(t, admin, m, func() { m.Spec.DRA.DeviceClasses = m.Spec.DRA.DeviceClasses[1:] })
	eventually(t, "the conflict is about fewer", func(ctx context.Context) (bool, error) {
		p, err := told(ctx, admin, m)
		return strings.HasPrefix(p.Message, "DeviceClasses "+strings.Join(names[1:], ", ")+" exist "), err
	})
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, own, false)
	for _, before := range foreign {
		now := &resourcev1.DeviceClass{}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(before), now); err != nil {
			t.Fatal(err)
		}
		if now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
			t.Errorf("DeviceClass %s was touched", before.Name)
		}
	}
	change(t, admin, m, func() { m.Finalizers = nil })
}

func TestClusterWithoutDRA(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	startOn(t, e, agentImage, true)
	namespace := e.Namespace(t)
	m := driverModule(namespace, namespace+".class")
	create(t, admin, m)
	eventually(t, "the Module is told", func(ctx context.Context) (bool, error) {
		p, err := told(ctx, admin, m)
		return p.Reason == kmmv1beta1.ReasonUnsupported, err
	})
	served(t, admin, namespace, "plugged")
	var daemonSets appsv1.DaemonSetList
	if err := admin.List(t.Context(), &daemonSets, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(daemonSets.Items) != 1 || daemonSets.Items[0].Name != "plugged-device-plugin" {
		t.Errorf("DaemonSets: %v", daemonSets.Items)
	}
	err := admin.Get(t.Context(), client.ObjectKey{Name: namespace + ".class"}, &resourcev1.DeviceClass{})
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) { // older releases do not know the kind at all
		t.Errorf("the DeviceClass: %v", err)
	}
}

func create(t *testing.T, admin client.Client, object client.Object) {
	t.Helper()
	if err := admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}
