// SPDX-License-Identifier: Apache-2.0

package ptemplate_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/kit/labels"
)

// fields is every field of a Ptemplate's spec: a change of it, from the sample, and what the
// children then have.
var fields = map[string]struct {
	patch string
	want  []string
	got   func(m *v1beta1.Module, set *appsv1.DaemonSet) []string
}{
	"maxdev":     {`{"spec":{"maxdev":3}}`, []string{"max_dev=3", "default_msg=ptemplate"}, parameters},
	"defaultmsg": {`{"spec":{"defaultmsg":"it's=$HOME;"}}`, []string{"max_dev=5", "default_msg=it's=$HOME;"}, parameters},
	"driverImage": {`{"spec":{"driverImage":"registry.example.com/other:${KERNEL_VERSION}"}}`,
		[]string{"registry.example.com/other:${KERNEL_VERSION}"}, driver},
	"deviceplugin": {`{"spec":{"deviceplugin":"registry.example.com/other-plugin:2"}}`, []string{"registry.example.com/other-plugin:2"},
		func(m *v1beta1.Module, _ *appsv1.DaemonSet) []string {
			return []string{m.Spec.DevicePlugin.Container.Image}
		}},
	"consumer": {`{"spec":{"consumerimage":null,"consumer":"registry.example.com/other-consumer:2"}}`,
		[]string{"registry.example.com/other-consumer:2"}, image},
	"consumerimage": {`{"spec":{"consumerimage":"registry.example.com/other-consumer:3"}}`,
		[]string{"registry.example.com/other-consumer:3"}, image},
	"requiredDevices": {`{"spec":{"requiredDevices":4}}`, []string{"4", "4"}, devices},
	"imageRepoSecret": {`{"spec":{"imageRepoSecret":{"name":"other"}}}`, []string{"other", "other"}, secrets},
	"imagePullSecret": {`{"spec":{"imageRepoSecret":null,"imagePullSecret":{"name":"another"}}}`, []string{"another", "another"}, secrets},
	"selector": {`{"spec":{"selector":{"node-role.kubernetes.io/worker":null,"rack":"b"}}}`, []string{"rack=b", "rack=b", "ready="},
		selectors},
}

func parameters(m *v1beta1.Module, _ *appsv1.DaemonSet) []string {
	return m.Spec.ModuleLoader.Container.Modprobe.Parameters
}

func driver(m *v1beta1.Module, _ *appsv1.DaemonSet) []string {
	return []string{m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage}
}

func image(_ *v1beta1.Module, set *appsv1.DaemonSet) []string {
	return []string{set.Spec.Template.Spec.Containers[0].Image}
}

// devices are the limit and the request.
func devices(_ *v1beta1.Module, set *appsv1.DaemonSet) []string {
	resources := set.Spec.Template.Spec.Containers[0].Resources
	limit, request := resources.Limits["example.com/ptemplate"], resources.Requests["example.com/ptemplate"]
	return []string{limit.String(), request.String()}
}

func secrets(m *v1beta1.Module, set *appsv1.DaemonSet) []string {
	var names []string
	if m.Spec.ImageRepoSecret != nil {
		names = append(names, m.Spec.ImageRepoSecret.Name)
	}
	for _, secret := range set.Spec.Template.Spec.ImagePullSecrets {
		names = append(names, secret.Name)
	}
	return names
}

// selectors are the labels that the Module asks of nodes, and those that the consumers do.
func selectors(m *v1beta1.Module, set *appsv1.DaemonSet) []string {
	var asked []string
	for _, selector := range []map[string]string{m.Spec.Selector, set.Spec.Template.Spec.NodeSelector} {
		for _, name := range slices.Sorted(maps.Keys(selector)) {
			asked = append(asked, name+"="+selector[name])
		}
	}
	ready := labels.Ready(m.Namespace, m.Name) + "="
	for i := range asked {
		if asked[i] == ready {
			asked[i] = "ready="
		}
	}
	slices.Sort(asked)
	return asked
}

func TestTheTableOfFieldsIsWhole(t *testing.T) {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.PtemplateSpec]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields (-type +table):\n%s", diff)
	}
}

// TestEveryFieldReachesItsChild: a change of any field, of an object whose children are there, is
// in the child it is for, and nothing else changes.
func TestEveryFieldReachesItsChild(t *testing.T) {
	r := newRig(t)
	r.start()
	for name, field := range fields {
		key := r.create(strings.ToLower(name))
		r.settled(key)
		if before := field.got(r.module(key), r.set(key)); slices.Equal(before, field.want) {
			t.Fatalf("%s: the children have %q before the change", name, before)
		}
		r.patch(r.ptemplate(key), field.patch)
		r.await("the change of "+name, func() bool {
			return slices.Equal(field.got(r.module(key), r.set(key)), field.want)
		})
		r.await("an end after the change of "+name, func() bool { return r.ready(key).Reason != "" })
		for other, f := range fields {
			if reflect.ValueOf(f.got).Pointer() == reflect.ValueOf(field.got).Pointer() {
				continue
			}
			if got := f.got(r.module(key), r.set(key)); slices.Equal(got, f.want) {
				t.Errorf("the change of %s changed %s, too: %q", name, other, got)
			}
		}
	}
}
