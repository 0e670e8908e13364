// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// TestMessages holds what Jobs, inputs and waiting images say in conditions: reason and whole
// message.
func TestMessages(t *testing.T) {
	began := metav1.Now()
	step := func(name string, code int32, message string) func(*batchv1.Job, *corev1.Pod) {
		return func(_ *batchv1.Job, pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: name, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
			}}}
		}
	}
	then := func(all ...func(*batchv1.Job, *corev1.Pod)) func(*batchv1.Job, *corev1.Pod) {
		return func(j *batchv1.Job, pod *corev1.Pod) {
			for _, one := range all {
				one(j, pod)
			}
		}
	}
	img := image(t, module(compiling, signing, func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"gpu": "true"} }), nil, "")
	job := img.Name + "-1"
	for name, tc := range map[string]struct {
		given        func(*batchv1.Job, *corev1.Pod)
		reason, says string
		passing      bool
	}{
		"no pod is admitted": {
			given: func(j *batchv1.Job, pod *corev1.Pod) { j.Status.StartTime, pod.Labels = &began, nil }, reason: v1beta1.ReasonBuilding,
			says: "the cluster admits no pod of the Job (Pod Security, a quota or a policy): see kubectl describe job " + job,
		},
		"no node takes the pod": {
			given: func(_ *batchv1.Job, pod *corev1.Pod) {
				pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
				}}
			}, reason: v1beta1.ReasonBuilding,
			says: "no node takes its pod, which needs one with the labels gpu=true,kubernetes.io/arch=amd64,kubernetes.io/os=linux: " +
				"label a node so, or choose other nodes with build.selector or sign.selector; if there is such a node, see kubectl describe pod p",
		},
		"the deadline is over": {
			given: func(j *batchv1.Job, pod *corev1.Pod) {
				pod.Labels = nil
				j.Status.Conditions = []batchv1.JobCondition{{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "Job was active longer than " +
						"specified deadline",
				}}
			}, reason: v1beta1.ReasonBuildFailed,
			says: "DeadlineExceeded: Job was active longer than specified deadline",
		},
		"check fails": {
			given: step("check", 1, `{"step":"check","reason":"Unauthorized","error":"look for r/m:1: 401"}`), reason: v1beta1.ReasonCheckFailed,
			says: "step check failed with exit code 1: look for r/m:1: 401",
		},
		"the compiler fails": {
			given: step("build", 2, "CC m.o\nm.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1\n"), reason: v1beta1.ReasonBuildFailed,
			says: "step build failed with exit code 2: m.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1",
		},
		"sign fails": {
			given: step("sign", 1, `{"step":"sign","reason":"KeyUnusable","error":"the key cannot be used"}`), reason: v1beta1.ReasonSignFailed,
			says: "step sign failed with exit code 1: the key cannot be used",
		},
		"push fails": {
			given: step("push", 1, `{"step":"push","reason":"Unavailable","error":"503"}`), reason: v1beta1.ReasonPushFailed,
			says: "step push failed with exit code 1: 503",
		},
		"a module does not fit": {
			given:  step("examine", 1, `{"step":"examine","reason":"Unfit","unfit":"VermagicMismatch","error":"kernel module m, kernel: it is for 6.1"}`),
			reason: v1beta1.ReasonVermagicMismatch, says: "kernel module m, kernel: it is for 6.1",
		},
		"the image to examine is missing": {
			given: step("examine", 1, `{"step":"examine","reason":"NotFound","error":"404"}`), reason: v1beta1.ReasonImageNotFound,
			says: "step examine failed with exit code 1: 404",
		},
		"a step exceeds its memory": {
			given: then(step("build", 137, "LD m.o"), func(_ *batchv1.Job, pod *corev1.Pod) {
				pod.Status.InitContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
			}), reason: v1beta1.ReasonBuildFailed,
			says: "out of memory: step build needs more than its limit (4Gi): step build failed with exit code 137: LD m.o",
		},
		"a node ends the pod": {
			given: then(step("build", 137, "CC m.o"), func(_ *batchv1.Job, pod *corev1.Pod) {
				pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message = "n1", "Evicted", "The node was low on resource: memory."
			}), reason: v1beta1.ReasonBuildFailed,
			says: "node n1 ended the pod: Evicted The node was low on resource: memory.: step build failed with exit code 137: CC m.o",
		},
		"a node takes no pod, its disk is full": {
			given: func(j *batchv1.Job, pod *corev1.Pod) {
				j.Status.Conditions = []batchv1.JobCondition{{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded,
					Message: "Job has reached the specified backoff limit",
				}}
				pod.Spec.NodeName, pod.Status.Phase = "n1", corev1.PodFailed
				pod.Status.Reason, pod.Status.Message = "Evicted", "The node had condition: [DiskPressure]. "
			}, reason: v1beta1.ReasonBuildFailed, passing: true,
			says: "node n1 ended the pod: Evicted The node had condition: [DiskPressure].",
		},
		"the disk is full": {
			given: step("build", 1, "cp: No space left on device"), reason: v1beta1.ReasonBuildFailed,
			says: "the node's disk is full: step build failed with exit code 1: cp: No space left on device",
		},
		"the compiler has no memory": {
			given: step("build", 1, "cc1: Cannot allocate memory"), reason: v1beta1.ReasonBuildFailed,
			says: "the build needs more memory than its limit: step build failed with exit code 1: cc1: Cannot allocate memory",
		},
		"a registry limits requests": {
			given: step("build", 1, "Error: toomanyrequests"), reason: v1beta1.ReasonBuildFailed,
			says: "a server limits the rate of requests: step build failed with exit code 1: Error: toomanyrequests",
		},
		"a registry refuses credentials": {
			given: step("build", 1, "Error: unauthorized: no"), reason: v1beta1.ReasonBuildFailed,
			says: "a registry refuses the credentials: step build failed with exit code 1: Error: unauthorized: no",
		},
		"a server is down": {
			given: step("build", 1, "dial tcp: connection refused"), reason: v1beta1.ReasonBuildFailed,
			says: "a server cannot be reached: step build failed with exit code 1: dial tcp: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := pipeline.Job(img, 1, "New", options())
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{batchv1.JobNameLabel: j.Name}}}
			tc.given(j, &pod)
			o := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, []corev1.Pod{pod})[0].Outcome
			if o.Reason != tc.reason || o.Message != tc.says {
				t.Errorf("it says %s: %s\nnot     %s: %s", o.Reason, o.Message, tc.reason, tc.says)
			}
			if tc.passing && !o.Passing {
				t.Error("it counts as a failure of the image's inputs")
			}
		})
	}
}

// TestMessagesOfInputs that cannot be declared or completed: whole errors, which BuildInputMissing
// quotes.
func TestMessagesOfInputs(t *testing.T) {
	const on = " for kernel " + kernelVersion + ": "
	native := func(n v1beta1.NativeBuild) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { mapping(m).Build = &v1beta1.Build{Native: &n} }
	}
	push := func(name string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Build.Push = &v1beta1.BuildPush{Name: name} }
	}
	for says, tc := range map[string]struct {
		given   []func(*v1beta1.Module)
		source  *corev1.ConfigMap
		builder string
	}{
		"sign" + on + "without a build, unsignedImage must be set": {
			given: []func(*v1beta1.Module){signing, func(m *v1beta1.Module) { container(m).Build = nil }},
		},
		"sign" + on + "keySecret and certSecret must be set, in the mapping or in the container": {
			given: []func(*v1beta1.Module){func(m *v1beta1.Module) { container(m).Sign = &v1beta1.Sign{} }},
		},
		"build" + on + "Secret key holds the signing key, which a build must not read: remove it from build.secrets": {
			given: []func(*v1beta1.Module){func(m *v1beta1.Module) {
				container(m).Sign = &v1beta1.Sign{KeySecret: ref("key"), CertSecret: ref("cert")}
				container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "key"}}
			}},
		},
		"build" + on + "native.toolchainImage must be set, in the mapping or in the container": {
			given: []func(*v1beta1.Module){native(v1beta1.NativeBuild{SourceImage: "r/s:1"})},
		},
		"build" + on + "native.sourceImage or native.sourceConfigMap must be set, in the mapping or in the container": {
			given: []func(*v1beta1.Module){native(v1beta1.NativeBuild{ToolchainImage: "r/t:1"})},
		},
		"build.push" + on + "r.example/n:1 must be r.example/m:" + kernelVersion + ", the image for nodes: only an image that is signed later " +
			"can have another name": {
			given: []func(*v1beta1.Module){push("r.example/n:1")},
		},
		"build.push" + on + "r.example/u:1 must equal sign.unsignedImage, r.example/v:1": {
			given: []func(*v1beta1.Module){signing, push("r.example/u:1"),
				func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r.example/v:1" }},
		},
		"ConfigMap dockerfile is missing: create it in the Module's namespace": {builder: "b@1"},
		`ConfigMap dockerfile lacks the key "dockerfile": add it`:              {source: &corev1.ConfigMap{}, builder: "b@1"},
		"the operator has no image to build from Dockerfiles with: set its flag --build-image, or use build.native": {
			source: configMap("FROM a"),
		},
	} {
		t.Run(says, func(t *testing.T) {
			m := module(tc.given...)
			spec, err := declare(t, m, kernelVersion)
			if err == nil {
				err = pipeline.Complete(m.Namespace, spec, tc.source, tc.builder)
			}
			if err == nil || err.Error() != says {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// TestMessagesOfClashes: two images with one name, and how to tell them apart.
func TestMessagesOfClashes(t *testing.T) {
	spec := v1alpha1.ModuleImageSpec{
		Module: "m", KernelVersion: "6.1.0", Architecture: "amd64", Image: "r/m:1", Build: &v1alpha1.ImageBuild{}, WantedBy: []string{"Module/m"},
	}
	const begin = "image r/m:1, for kernel 6.1.0 on amd64, has the same name as that of the older ModuleImage old "
	for says, change := range map[string]func(*v1alpha1.ModuleImageSpec){
		"(Module n, kernel 6.1.0 on amd64): add ${MOD_NAME} to the image name": func(s *v1alpha1.ModuleImageSpec) { s.Module = "n" },
		"(Module m, kernel 6.2.0 on amd64): add ${KERNEL_FULL_VERSION} to the image name": func(s *v1alpha1.ModuleImageSpec) {
			s.KernelVersion = "6.2.0"
		},
		"(Module m, kernel 6.1.0 on arm64): add ${NODE_ARCH} to the image name": func(s *v1alpha1.ModuleImageSpec) { s.Architecture = "arm64" },
		"(Module m, kernel 6.1.0+ on amd64): 6.1.0 and 6.1.0+ are the same in a tag: use a Module for each, with another image name": func(
			s *v1alpha1.ModuleImageSpec) {
			s.KernelVersion = "6.1.0+"
		},
		"(Module m, kernel 6.1.0 on amd64): it is made when nobody wants the other one": func(*v1alpha1.ModuleImageSpec) {},
	} {
		rival := v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: *spec.DeepCopy()}
		change(&rival.Spec)
		if got := pipeline.Clash(&v1alpha1.ModuleImage{Spec: spec}, &rival); got != begin+says {
			t.Errorf("it says %s\nnot     %s", got, begin+says)
		}
	}
}

// TestMessagesOfWaiting: a Module's image without a ModuleImage, or without a condition.
func TestMessagesOfWaiting(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	for says, images := range map[string][]v1alpha1.ModuleImage{"is about to be made": nil, "is being made": {*img}} {
		if got := pipeline.Ask(images, &img.Spec); got.Reason != v1beta1.ReasonBuilding ||
			got.Message != strings.Join([]string{"image", img.Spec.Image, says}, " ") {
			t.Errorf("it says %s: %s", got.Reason, got.Message)
		}
	}
}
