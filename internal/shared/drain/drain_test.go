// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

var nic = types.NamespacedName{Namespace: "team", Name: "nic"}

func TestCordonsKnowWhoseTheyAre(t *testing.T) {
	cases := map[string]struct {
		cordoned bool
		marks    string
		change   func(*corev1.Node, types.NamespacedName) ([]byte, error)
		// then is the annotation, and whether the node is unschedulable; no write without it.
		writes bool
		then   string
		after  bool
	}{
		"cordon":                               {change: Cordon, writes: true, then: "team/nic", after: true},
		"an administrator's cordon is enough":  {cordoned: true, change: Cordon},
		"our own stands":                       {cordoned: true, marks: "team/nic", change: Cordon},
		"another Module's is shared":           {cordoned: true, marks: "a/b", change: Cordon, writes: true, then: "a/b,team/nic", after: true},
		"ours, uncordoned by somebody":         {marks: "team/nic", change: Cordon, writes: true, then: "team/nic", after: true},
		"uncordon":                             {cordoned: true, marks: "team/nic", change: Uncordon, writes: true},
		"an administrator's cordon stays":      {cordoned: true, change: Uncordon},
		"another Module's stays":               {cordoned: true, marks: "a/b", change: Uncordon},
		"what another Module needs, too":       {cordoned: true, marks: "a/b,team/nic", change: Uncordon, writes: true, then: "a/b", after: true},
		"somebody has uncordoned it meanwhile": {marks: "a/b,team/nic", change: Uncordon, writes: true, then: "a/b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Spec: corev1.NodeSpec{Unschedulable: tc.cordoned}}
			if tc.marks != "" {
				node.Annotations = map[string]string{v1beta1.CordonedAnnotation: tc.marks}
			}
			patch, err := tc.change(node, nic)
			if err != nil || (patch != nil) != tc.writes {
				t.Fatalf("patch %s, %v", patch, err)
			}
			if !tc.writes {
				return
			}
			var got struct {
				Metadata struct {
					ResourceVersion string
					Annotations     map[string]string
				}
				Spec struct{ Unschedulable bool }
			}
			if err := json.Unmarshal(patch, &got); err != nil {
				t.Fatal(err)
			}
			if got.Metadata.ResourceVersion != "7" || got.Metadata.Annotations[v1beta1.CordonedAnnotation] != tc.then ||
				got.Spec.Unschedulable != tc.after {
				t.Errorf("patch %s", patch)
			}
		})
	}
}

func TestWhichPodsGo(t *testing.T) {
	controlled := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: new(bool)}}}
	}
	of := func(kind string) metav1.ObjectMeta {
		meta := controlled(kind)
		*meta.OwnerReferences[0].Controller = true
		return meta
	}
	cases := map[string]struct {
		pod  corev1.Pod
		goes bool
	}{
		"a bare pod":                {goes: true},
		"a ReplicaSet's":            {pod: corev1.Pod{ObjectMeta: of("ReplicaSet")}, goes: true},
		"a DaemonSet's":             {pod: corev1.Pod{ObjectMeta: of("DaemonSet")}},
		"owned, but not controlled": {pod: corev1.Pod{ObjectMeta: controlled("DaemonSet")}, goes: true},
		"a static pod": {pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}},
		"a carrier":                  {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta1.CarrierLabel: ""}}}},
		"one that has done its work": {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}},
		"one that has failed":        {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.goes, Goes(&tc.pod)); diff != "" {
				t.Errorf("it goes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatAnEvictionWouldLose(t *testing.T) {
	made := func(change func(*corev1.Pod)) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "train"}, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(bool)}},
		}}
		*pod.OwnerReferences[0].Controller = true
		change(&pod)
		return pod
	}
	bare := func(pod *corev1.Pod) { pod.OwnerReferences = nil }
	scratch := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	leaving := func(pod *corev1.Pod) { bare(pod); pod.DeletionTimestamp = &metav1.Time{} }
	cases := map[string]struct {
		pod     corev1.Pod
		options v1beta1.DrainOptions
		then    Verdict
	}{
		"a controller brings it back": {made(func(*corev1.Pod) {}), v1beta1.DrainOptions{}, Evict},
		"a bare pod":                  {made(bare), v1beta1.DrainOptions{DeleteEmptyDirData: true}, Spare},
		"a bare pod, forced":          {made(bare), v1beta1.DrainOptions{Force: true}, Evict},
		"a bare pod that leaves":      {made(leaving), v1beta1.DrainOptions{}, Evict},
		"with an emptyDir":            {made(scratch), v1beta1.DrainOptions{Force: true}, Spare},
		"with an emptyDir, given up":  {made(scratch), v1beta1.DrainOptions{DeleteEmptyDirData: true}, Evict},
		"it is waited for":            {made(bare), v1beta1.DrainOptions{WaitForCompletion: map[string]string{"app": "train"}}, Await},
		"one of two labels is another": {made(bare),
			v1beta1.DrainOptions{Force: true, WaitForCompletion: map[string]string{"app": "train", "tier": "x"}}, Evict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, why := Judge(&tc.pod, tc.options)
			if got != tc.then || (why == "") != (got == Evict) {
				t.Errorf("verdict %d (%s)", got, why)
			}
		})
	}
}

func TestWhoIsMeant(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "db-0", UID: "u1"}}
	for meant, want := range map[Meant]bool{
		{Pod: "team/db-0", UID: "u1"}: true, {Pod: "team/db-0"}: true,
		{Pod: "team/db-0", UID: "u0"}: false, {Pod: "other/db-0", UID: "u1"}: false, {Pod: "team/db-1"}: false, {UID: "u1"}: false,
	} {
		if got := meant.Is(pod); got != want {
			t.Errorf("%+v is it: %t", meant, got)
		}
	}
}
