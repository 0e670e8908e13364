// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
)

func TestEnabled(t *testing.T) {
	cases := map[string]struct{ module, plugin bool }{
		"*":                 {true, true},
		"*,-plugin":         {true, false},
		"module":            {true, false},
		"*, -plugin ,-node": {true, false},
		"-plugin,*":         {true, false},
		"plugin,-plugin":    {false, false},
		"somebody-elses":    {false, false},
	}
	for flag, then := range cases {
		t.Run(flag, func(t *testing.T) {
			o := &Options{Controllers: strings.Split(flag, ",")}
			if got := o.enabled("module"); got != then.module {
				t.Errorf("module runs: %t", got)
			}
			if got := o.enabled("plugin"); got != then.plugin {
				t.Errorf("plugin runs: %t", got)
			}
		})
	}
}

func TestOptionalControllersRunWhereTheyAreNamed(t *testing.T) {
	for flag, then := range map[string]bool{"*": false, "*,ooto": true, "ooto": true, "*,ooto,-ooto": false} {
		if got := (&Options{Controllers: strings.Split(flag, ",")}).enabled("ooto"); got != then {
			t.Errorf("--controllers=%s: ooto runs: %t", flag, got)
		}
	}
}

// TestEachOperatorMakesItsImages: a hub those that ManagedClusterModules want, an operator of the
// cluster beside it the others.
func TestEachOperatorMakesItsImages(t *testing.T) {
	for mode, mine := range map[Mode]map[string]bool{
		ModeCluster: {"Module/m": true, "ManagedClusterModule/m": false, "Module/m ManagedClusterModule/m": false},
		ModeHub:     {"Module/m": false, "ManagedClusterModule/m": true, "Module/m ManagedClusterModule/m": true},
	} {
		o := &Options{Mode: mode, Build: pipeline.Options{SignerImage: "s"}, Controllers: []string{"*"}}
		for by, want := range mine {
			image := &v1alpha1.ModuleImage{Spec: v1alpha1.ModuleImageSpec{WantedBy: strings.Fields(by)}}
			if got := o.Images(nil).Mine(image); got != want {
				t.Errorf("mode %s makes what %s wants: %t", mode, by, got)
			}
		}
	}
}

// TestWithoutASignerImagesAreOnlyExamined: what an operator makes and examines, by its flags.
func TestWithoutASignerImagesAreOnlyExamined(t *testing.T) {
	const both, examiner = "--signer-image=s --examiner-image=o", "--examiner-image=o"
	build, examine := &v1alpha1.ImageBuild{}, &v1alpha1.ImageExamine{}
	for flags, then := range map[string]struct{ makes, examines bool }{
		"":                               {},
		examiner:                         {examines: true},
		"--signer-image=s":               {makes: true, examines: true},
		both:                             {makes: true, examines: true},
		both + " --controllers=*,-image": {},
		both + " --mode=spoke":           {},
		examiner + " --mode=hub":         {},
		both + " --mode=hub":             {makes: true, examines: true},
	} {
		o, err := ParseFlags(append(strings.Fields(flags), "--agent-image=a"))
		if err != nil {
			t.Fatal(err)
		}
		if o.Makes() != then.makes || o.Examines() != then.examines {
			t.Errorf("%q: makes %t, examines %t", flags, o.Makes(), o.Examines())
		}
		if o.Mode != ModeCluster || !o.Examines() {
			continue
		}
		for name, image := range map[string]struct {
			spec v1alpha1.ModuleImageSpec
			mine bool
		}{
			"of a registry": {spec: v1alpha1.ModuleImageSpec{Examine: examine}, mine: true},
			"for a trial":   {spec: v1alpha1.ModuleImageSpec{Examine: examine, Build: build}, mine: then.makes},
			"for nodes":     {spec: v1alpha1.ModuleImageSpec{Build: build}, mine: then.makes},
		} {
			if got := o.Images(nil).Mine(&v1alpha1.ModuleImage{Spec: image.spec}); got != image.mine {
				t.Errorf("%q: an image %s is its own: %t", flags, name, got)
			}
		}
	}
}

func TestTheCacheKeepsLittleOfANode(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
			Annotations: map[string]string{v1beta1.PausedAnnotation: "", "other": "large"},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "x"}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6"},
			Images:   []corev1.ContainerImage{{Names: []string{"large"}}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
				{Type: v1beta1.NodeConditionKernelModules, Reason: "AllReady"},
			},
		},
	}
	got, err := slimNode(node)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{v1beta1.PausedAnnotation: ""},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "x"}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: v1beta1.NodeConditionKernelModules, Reason: "AllReady"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestTheCacheKeepsLittleOfAPod(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1, 0)}}
	meta := metav1.ObjectMeta{
		Namespace: "drivers", Name: "p", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Finalizers: []string{"kept"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet"}}, Annotations: map[string]string{v1beta1.ModuleNameAnnotation: "m"},
	}
	pod := &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName: "n", ServiceAccountName: "default",
			InitContainers: []corev1.Container{{Name: "copy", Image: "large"}}, Containers: []corev1.Container{{Name: "export"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Reason: "why", Message: "what", PodIP: "10.0.0.1", HostIP: "10.0.0.2", QOSClass: "Burstable",
			Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0 of 5,000 nodes"},
			},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "copy", ImageID: "sha256:1", LastTerminationState: running}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "export", Image: "i", ContainerID: "containerd://1", State: running}},
		},
	}
	pod.Annotations = map[string]string{v1beta1.ModuleNameAnnotation: "m", "other": "large"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	got, err := slimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Pod{
		ObjectMeta: meta,
		Spec:       corev1.PodSpec{NodeName: "n", InitContainers: []corev1.Container{{Name: "copy"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Reason: "why", Message: "what",
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
			},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "copy", LastTerminationState: running}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "export", Image: "i", State: running}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// TestRulesReadTheSameOfACachedCarrier: what rules ask of a carrier has the same answer after the
// cache has taken out what it does not keep.
func TestRulesReadTheSameOfACachedCarrier(t *testing.T) {
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "m", UID: "u"}}
	module.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "pull"}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1, 0)}}
	for name, mode := range map[string]delivery.Mode{"image volume": delivery.ModeImageVolume, "init container": delivery.ModeInitContainer} {
		for state, status := range map[string]corev1.PodStatus{
			"new":     {Phase: corev1.PodPending},
			"waiting": {Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "export", State: waiting}}},
			"running": {Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "export", State: running}}},
			"unschedulable": {Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
			"evicted": {Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."},
		} {
			t.Run(name+", "+state, func(t *testing.T) {
				carrier := delivery.Carrier(&delivery.Request{
					Module: module, Config: &v1beta1.ModuleConfig{ContainerImage: "registry.example/nic:1"}, Image: "registry.example/nic:1",
					ID: "id", Node: "n", Mode: mode, AgentImage: "registry.example/agent:1",
				})
				carrier.Status = status
				cached, err := slimPod(carrier.DeepCopy())
				if err != nil {
					t.Fatal(err)
				}
				answers := func(pod *corev1.Pod) []any {
					since, runs := delivery.RunningSince(pod)
					return []any{
						delivery.AgentImageOf(pod), delivery.ModeOf(pod), delivery.PullsAs(pod, module, "registry.example/nic:1"),
						delivery.ProblemOf(pod), delivery.CannotStart(pod), delivery.Ended(pod), since, runs,
						delivery.Stalled(pod, time.Hour), delivery.Running(pod),
					}
				}
				if got := delivery.AgentImageOf(carrier); got != "registry.example/agent:1" {
					t.Errorf("the carrier's agent: %q", got)
				}
				kept, ok := cached.(*corev1.Pod)
				if !ok {
					t.Fatalf("kept: %T", cached)
				}
				if diff := cmp.Diff(answers(carrier), answers(kept)); diff != "" {
					t.Errorf("(-as it is +from the cache):\n%s", diff)
				}
			})
		}
	}
}

func TestCarrierUser(t *testing.T) {
	openshift := schema.GroupVersion{Group: "security.openshift.io", Version: "v1"}
	cases := map[string]struct {
		given []schema.GroupVersionKind
		then  *int64
	}{
		"plain Kubernetes": {then: ptr.To[int64](carrierUser)},
		"OpenShift":        {given: []schema.GroupVersionKind{openshift.WithKind("SecurityContextConstraints")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{openshift})
			for _, kind := range tc.given {
				mapper.AddSpecific(kind, openshift.WithResource("securitycontextconstraints"), openshift.WithResource("securitycontextconstraint"),
					meta.RESTScopeRoot)
			}
			got, err := CarrierUser(mapper)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("user (-want +got):\n%s", diff)
			}
		})
	}
}
