// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestNodesWaitForImagesThatAreMade: what is asked of a node is the delivery of these inputs, what
// keeps its image comes before what could happen to it later, and a node that holds the delivery
// waits for nothing.
func TestNodesWaitForImagesThatAreMade(t *testing.T) {
	const kernelVersion = "6.1.0"
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}}
	module.Spec.Selector = map[string]string{"nic": ""}
	module.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
		Build:          &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:1"}},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"nic": ""}}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: kernelVersion, Architecture: "amd64", OperatingSystem: "linux"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}

	d := desired.New(module)
	plain := d.On(kernelVersion, "amd64").State
	spec, err := pipeline.Declare(module, &kernel.Resolved{Config: plain.Config, Release: kernelVersion, Mapping: plain.Mapping}, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := pipeline.Complete("team", spec, &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM a"}}, "b@1"); err != nil {
		t.Fatal(err)
	}
	spec.WantedBy = []string{pipeline.WantedByModule("nic")}
	made, err := delivery.ID(module, &plain.Config, spec.Hash)
	if err != nil {
		t.Fatal(err)
	}
	stands := func(status metav1.ConditionStatus, reason, reference string, prebuilt bool) []v1alpha1.ModuleImage {
		image := v1alpha1.ModuleImage{Spec: *spec, Status: v1alpha1.ModuleImageStatus{Image: reference, Prebuilt: prebuilt}}
		image.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason}}
		return []v1alpha1.ModuleImage{image}
	}
	there := stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "r.example/nic:1@sha256:a", false)
	for name, tc := range map[string]struct {
		makes    bool
		images   []v1alpha1.ModuleImage
		problem  *reasons.Problem
		holds    string
		delivery string
		reason   string // what keeps the image from the node
	}{
		"nobody makes any": {delivery: plain.Delivery, reason: "carrier"},
		"not begun":        {makes: true, delivery: plain.Delivery, reason: v1beta1.ReasonBuilding},
		"cannot be begun": {makes: true, problem: &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing}, delivery: plain.Delivery,
			reason: v1beta1.ReasonBuildInputMissing},
		"failed": {makes: true, images: stands(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "", false), delivery: made,
			reason: v1beta1.ReasonBuildFailed},
		"there": {makes: true, images: there, delivery: made, reason: "carrier"},
		"prebuilt": {makes: true,
			images: stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "r.example/nic:1@sha256:a", true), delivery: plain.Delivery,
			reason: "carrier"},
		"lost, and the node has": {makes: true, images: stands(metav1.ConditionFalse, v1beta1.ReasonImageNotFound, "", false), holds: made,
			delivery: made, reason: "carrier"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1beta1.NodeModulesConfig{}
			if tc.holds != "" {
				config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: tc.holds}}
			}
			s := &Scene{
				Module: module, Desired: d.With(desired.Images{Makes: tc.makes, Made: tc.images, Problem: tc.problem}),
				Configs:    map[string]*v1beta1.NodeModulesConfig{"a": config},
				Deliveries: func(string) *reasons.Problem { return &reasons.Problem{Reason: "carrier"} },
			}
			ask := s.Wants(node).State
			known, _ := s.Node(node)
			if ask.Delivery != tc.delivery || known.Delivery == nil || known.Delivery.Reason != tc.reason || (known.Image != nil) != tc.makes {
				t.Errorf("delivery %s (plain %s, made %s), %+v, image %+v", ask.Delivery, plain.Delivery, made, known.Delivery, known.Image)
			}
		})
	}
}
