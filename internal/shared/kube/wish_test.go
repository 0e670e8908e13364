// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/shared/kube"
)

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "web", Image: "r/web:1", Args: []string{"moo"},
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")}},
				}},
				Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			}},
		},
	}
}

func TestAWishIsWhatIsSet(t *testing.T) {
	given := deployment()
	given.UID, given.ResourceVersion, given.Generation = "u", "7", 3
	given.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	given.Status.Replicas = 4
	got, err := kube.Wish(given, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err != nil {
		t.Fatal(err)
	}
	hash := got.GetAnnotations()[kube.HashAnnotation]
	if len(hash) != 16 {
		t.Errorf("hash %q", hash)
	}
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"namespace": "ns", "name": "web", "labels": map[string]any{"app": "web"}, "annotations": map[string]any{kube.HashAnnotation: hash},
		},
		"spec": map[string]any{
			"replicas": int64(0), // a wish, too
			"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{
					"name": "web", "image": "r/web:1", "args": []any{"moo"}, "resources": map[string]any{"limits": map[string]any{"cpu": "1"}},
				}},
				"volumes": []any{map[string]any{"name": "tmp", "emptyDir": map[string]any{}}},
			}},
		},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("wish (-want +got):\n%s", diff)
	}
	again, err := kube.Wish(deployment(), appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err != nil || again.GetAnnotations()[kube.HashAnnotation] != hash {
		t.Errorf("the same wish has the hash %q (%v)", again.GetAnnotations(), err)
	}
}

func TestSettled(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	cases := map[string]struct {
		given func(d *appsv1.Deployment)
		then  bool
	}{
		"as it was written": {func(*appsv1.Deployment) {}, true},
		"defaults, also in lists": {func(d *appsv1.Deployment) {
			d.Spec.RevisionHistoryLimit = ptr.To[int32](10)
			d.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
			d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}, true},
		"others' labels and status":   {func(d *appsv1.Deployment) { d.Labels["theirs"], d.Status.Replicas = "x", 3 }, true},
		"a zero is not zero any more": {func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) }, false},
		"an item more":                {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"moo", "more"} }, false},
		"a label less":                {func(d *appsv1.Deployment) { d.Labels = nil }, false},
		"an image changed":            {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "r/web:2" }, false},
		"another wish":                {func(d *appsv1.Deployment) { d.Annotations[kube.HashAnnotation] = "x" }, false},
		"the same in other words": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wish, err := kube.Wish(deployment(), kind)
			if err != nil {
				t.Fatal(err)
			}
			have := deployment()
			have.Annotations = wish.GetAnnotations()
			tc.given(have)
			if got, err := kube.Settled(wish, have); err != nil || got != tc.then {
				t.Errorf("settled %t (%v), want %t", got, err, tc.then)
			}
		})
	}
}

// TestListsOfCustomResources are compared as a whole: what is more in an item was written by
// somebody else, with the whole list.
func TestListsOfCustomResources(t *testing.T) {
	item := func(fields ...string) map[string]any {
		m := map[string]any{"name": "a"}
		for _, f := range fields {
			m[f] = "x"
		}
		return map[string]any{"metadata": map[string]any{"name": "n"}, "spec": map[string]any{"list": []any{m}}}
	}
	kind := metav1.GroupVersion{Group: "example.com", Version: "v1"}
	given := unstructuredOf(kind, item())
	wish, err := kube.Wish(given, given.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		fields []string
		then   bool
	}{"the same": {nil, true}, "a field more": {[]string{"b"}, false}} {
		have := unstructuredOf(kind, item(tc.fields...))
		have.SetAnnotations(wish.GetAnnotations())
		if got, err := kube.Settled(wish, have); err != nil || got != tc.then {
			t.Errorf("%s: settled %t (%v), want %t", name, got, err, tc.then)
		}
	}
}

func unstructuredOf(kind metav1.GroupVersion, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(kind.String())
	u.SetKind("Thing")
	return u
}
