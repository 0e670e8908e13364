// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// TestMessages holds what a PreflightValidation says about one Module: status, reason and whole
// message.
func TestMessages(t *testing.T) {
	const kernel = "6.1.0-44-amd64"
	build := func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "dockerfile"}}
	}
	available := func(status metav1.ConditionStatus, reason, message string) *v1alpha1.ModuleImageStatus {
		return &v1alpha1.ModuleImageStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason, Message: message},
		}}
	}
	fitting := available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "Nothing found speaks against it")
	fitting.Image = "r/m@sha256:a"
	const examines, makes = "examines", "makes"
	for name, tc := range map[string]struct {
		module       func(*v1beta1.Module)
		image        *v1alpha1.ModuleImageStatus // of the image that is wanted; nil: there is none yet
		without      []string                    // what the operator does not do
		arches       []string
		status       v1beta2.VerificationStatus
		reason, says string
	}{
		"without a kernel module": {
			module: func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil },
			status: v1beta2.VerificationSuccess, says: "the Module loads no kernel module",
		},
		"no mapping": {
			module: func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = "^5" },
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonNoKernelMapping,
			says: "none of the 1 kernelMappings matches kernel 6.1.0-44-amd64",
		},
		"a bad mapping": {
			module: func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = "" },
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonNoKernelMapping,
			says: "spec.moduleLoader.container.kernelMappings[0]: exactly one of regexp and literal must be set",
		},
		"no value for a variable": {
			module: func(m *v1beta1.Module) {
				m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/m:$KERNEL_RHEL_ARCH"
			},
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonNoKernelMapping,
			says: "spec.moduleLoader.container.kernelMappings[0].containerImage: variable KERNEL_RHEL_ARCH: kernel 6.1.0-44-amd64 is not a " +
				"RHEL kernel",
		},
		"nobody examines": {
			without: []string{examines, makes},
			status:  v1beta2.VerificationFailure, reason: v1beta1.ReasonCheckFailed,
			says: "the operator cannot examine images: set its flag --examiner-image, and enable its controller image",
		},
		"nobody makes an image that is there": {
			module: build, without: []string{makes}, image: fitting,
			status: v1beta2.VerificationSuccess, says: "Nothing found speaks against it",
		},
		"nobody makes an image that is missing": {
			module: build, without: []string{makes},
			image:  available(metav1.ConditionFalse, v1beta1.ReasonImageNotFound, "examine r/m:1: 404"),
			status: v1beta2.VerificationInProgress, reason: v1beta1.ReasonImageNotFound, says: "examine r/m:1: 404",
		},
		"nobody makes an image that is missing after all": {
			module: build, without: []string{makes},
			image: func() *v1alpha1.ModuleImageStatus {
				s := available(metav1.ConditionFalse, v1beta1.ReasonImageNotFound, "examine r/m:1: 404")
				s.Failures = 1
				return s
			}(),
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonImageNotFound,
			says: "examine r/m:1: 404; the Module asks for a build or a signature, but this operator makes no images: run it with " +
				"--signer-image",
		},
		"no Dockerfile": {
			module: build,
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonBuildInputMissing,
			says: "ConfigMap dockerfile is missing: create it in the Module's namespace",
		},
		"just asked": {
			status: v1beta2.VerificationInProgress, reason: v1beta1.ReasonBuilding, says: "the image is about to be examined",
		},
		"just asked, for two architectures": {
			arches: []string{"amd64", "arm64"},
			status: v1beta2.VerificationInProgress, reason: v1beta1.ReasonBuilding, says: "amd64: the image is about to be examined",
		},
		"under way": {
			image:  available(metav1.ConditionFalse, v1beta1.ReasonBuilding, "Job i-1 examines image r/m:1"),
			status: v1beta2.VerificationInProgress, reason: v1beta1.ReasonBuilding, says: "Job i-1 examines image r/m:1",
		},
		"it fits": {
			image:  fitting,
			status: v1beta2.VerificationSuccess, says: "Nothing found speaks against it",
		},
		"it does not fit": {
			image: func() *v1alpha1.ModuleImageStatus {
				s := available(metav1.ConditionFalse, v1beta1.ReasonVermagicMismatch, "kernel module m is for another kernel")
				s.Failures = 1
				return s
			}(),
			status: v1beta2.VerificationFailure, reason: v1beta1.ReasonVermagicMismatch, says: "kernel module m is for another kernel",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"},
				Spec: v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
					KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "r/m:1"}},
				}}},
			}
			if tc.module != nil {
				tc.module(m)
			}
			arches := tc.arches
			if arches == nil {
				arches = []string{"amd64"}
			}
			p := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta2.PreflightValidationSpec{KernelVersion: kernel}}
			w := &world{images: map[types.NamespacedName]*v1alpha1.ModuleImage{}, buildahImage: "b@1",
				examines: !slices.Contains(tc.without, examines), makes: !slices.Contains(tc.without, makes)}
			f := examine(p, m, arches, w)
			if tc.image != nil {
				for key, spec := range f.wants {
					w.images[key] = &v1alpha1.ModuleImage{Spec: *spec, Status: *tc.image}
				}
				f = examine(p, m, arches, w)
			}
			if f.status != tc.status || f.reason != tc.reason || f.message != tc.says {
				t.Errorf("it says %s, %s: %s\nnot     %s, %s: %s", f.status, f.reason, f.message, tc.status, tc.reason, tc.says)
			}
		})
	}
}

// TestMessagesOfTrials: an image that was made for a preflight alone.
func TestMessagesOfTrials(t *testing.T) {
	image := &v1alpha1.ModuleImage{
		Spec: v1alpha1.ModuleImageSpec{Examine: &v1alpha1.ImageExamine{}, Build: &v1alpha1.ImageBuild{}},
		Status: v1alpha1.ModuleImageStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Message: "Nothing found speaks against it"},
		}},
	}
	const says = "Nothing found speaks against it; the image was made for this check and not pushed"
	if f := (finding{}).stands(image); f.status != v1beta2.VerificationSuccess || f.message != says {
		t.Errorf("it says %s: %s", f.status, f.message)
	}
}

// TestMessagesOfReady holds the condition Ready of a PreflightValidation.
func TestMessagesOfReady(t *testing.T) {
	one := func(name string, status v1beta2.VerificationStatus, reason string) finding {
		return finding{module: types.NamespacedName{Namespace: "ns", Name: name}, status: status, reason: reason}
	}
	ok, busy := one("ok", v1beta2.VerificationSuccess, ""), one("busy", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)
	bad := one("bad", v1beta2.VerificationFailure, v1beta1.ReasonImageNotFound)
	for says, tc := range map[string]struct {
		found  []finding
		status metav1.ConditionStatus
		reason string
	}{
		"All 1 Modules are ready for kernel 6.1.0": {[]finding{ok}, metav1.ConditionTrue,
			v1beta1.ReasonKernelReady},
		"No Module selects a node with these labels": {nil, metav1.ConditionTrue,
			v1beta1.ReasonKernelReady},
		"1 of 2 Modules are still being checked for kernel 6.1.0: ns/busy (Building)": {[]finding{ok, busy},
			metav1.ConditionFalse, v1beta1.ReasonPreflightRunning},
		"1 of 2 Modules are not ready for kernel 6.1.0: ns/bad (ImageNotFound)": {[]finding{ok, bad},
			metav1.ConditionFalse, v1beta1.ReasonPreflightFailed},
		"1 of 2 Modules are not ready for kernel 6.1.0: ns/bad (ImageNotFound); 1 still being checked": {[]finding{bad, busy},
			metav1.ConditionFalse, v1beta1.ReasonPreflightFailed},
	} {
		p := &v1beta2.PreflightValidation{Spec: v1beta2.PreflightValidationSpec{KernelVersion: "6.1.0+"}}
		c := statusOf(p, tc.found, time.Unix(0, 0)).Conditions[0]
		if c.Type != v1beta1.ConditionReady || c.Status != tc.status || c.Reason != tc.reason || c.Message != says {
			t.Errorf("it says %s, %s: %s\nnot     %s, %s: %s", c.Status, c.Reason, c.Message, tc.status, tc.reason, says)
		}
	}
}
