// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

func options() *pipeline.Options {
	return &pipeline.Options{
		SignerImage: "registry.invalid/drover/drover-signer:dev", BuildahImage: "q/buildah@sha256:" + strings.Repeat("a", 64), HostModules: true,
		User: ptr.To[int64](65532), Deadline: time.Hour, MountImages: true,
	}
}

// signing asks for a signature besides the build.
func signing(m *v1beta1.Module) {
	container(m).Sign = &v1beta1.Sign{KeySecret: ref("key"), CertSecret: ref("cert"), FilesToSign: []string{"/opt/a.ko"}}
}

func compiling(m *v1beta1.Module) {
	container(m).Build = &v1beta1.Build{
		Secrets: []corev1.LocalObjectReference{{Name: "licence"}},
		Native: &v1beta1.NativeBuild{ToolchainImage: "r/gcc:12", HeadersImage: "r/headers:$KERNEL_FULL_VERSION", SourceImage: "r/src:1",
			Artifacts: []string{"*.ko"}},
	}
}

func job(t *testing.T, change ...func(*v1beta1.Module)) *batchv1.Job {
	t.Helper()
	return pipeline.Job(image(t, module(change...), configMap("FROM a"), options().BuildahImage), 1, "New", options())
}

// steps are the names of all containers, in the order in which they run.
func steps(pod *corev1.PodSpec) []string {
	var names []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		names = append(names, c.Name)
	}
	return names
}

func TestStepsOfAJob(t *testing.T) {
	unsigned := func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r/u:1" }
	for name, tc := range map[string]struct {
		given []func(*v1beta1.Module)
		then  []string
	}{
		"build":          {then: []string{"check", "build", "push"}},
		"build and sign": {given: []func(*v1beta1.Module){signing}, then: []string{"check", "build", "sign", "push"}},
		"the unsigned image too": {given: []func(*v1beta1.Module){signing, unsigned},
			then: []string{"check", "build", "push-unsigned", "sign", "push"}},
		"sign only": {
			given: []func(*v1beta1.Module){signing, unsigned, func(m *v1beta1.Module) { container(m).Build = nil }},
			then:  []string{"check", "pull", "sign", "push"},
		},
		"native": {given: []func(*v1beta1.Module){compiling, signing}, then: []string{"check", "build", "pack", "sign", "push"}},
		"native, from a ConfigMap": {
			given: []func(*v1beta1.Module){compiling, func(m *v1beta1.Module) {
				n := container(m).Build.Native
				n.SourceImage, n.SourceConfigMap = "", ref("source")
			}},
			then: []string{"check", "source", "build", "pack", "push"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(t, tc.given...)
			if diff := cmp.Diff(tc.then, steps(&j.Spec.Template.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSecretsAreWhereTheyAreNeeded: the key is in sign alone, beside nothing of the user's and
// without any registry's secret.
func TestSecretsAreWhereTheyAreNeeded(t *testing.T) {
	for _, kind := range []func(*v1beta1.Module){compiling,
		func(m *v1beta1.Module) { container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "licence"}} }} {
		pod := job(t, kind, signing).Spec.Template.Spec
		secret := map[string]string{}
		for _, v := range pod.Volumes {
			if v.Secret != nil {
				secret[v.Name] = v.Secret.SecretName
			}
		}
		got := map[string][]string{}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				if name, ok := secret[m.Name]; ok {
					got[c.Name] = append(got[c.Name], name)
					if !m.ReadOnly {
						t.Errorf("%s mounts %s so that it can be written", c.Name, name)
					}
				}
			}
		}
		want := map[string][]string{"check": {"repo", "cert"}, "build": {"licence"}, "sign": {"key", "cert"}, "push": {"repo", "cert"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if pod.ShareProcessNamespace == nil || *pod.ShareProcessNamespace || pod.AutomountServiceAccountToken == nil ||
			*pod.AutomountServiceAccountToken {
			t.Error("the pod's processes see each other, or a token")
		}
	}
}

// TestBuildsFindWhatUpstreamsDo: Secrets and the node's modules inside RUN, arguments, TLS, the
// right node.
func TestBuildsFindWhatUpstreamsDo(t *testing.T) {
	j := job(t, func(m *v1beta1.Module) {
		container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "licence"}}
		container(m).Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "b c; d"}}
		container(m).Build.BaseImageRegistryTLS.InsecureSkipTLSVerify = true
		container(m).Build.Selector = map[string]string{"builds": "here"}
		container(m).RegistryTLS.Insecure = true
	})
	pod := j.Spec.Template.Spec
	args := strings.Join(pod.InitContainers[1].Args, "\x00") + "\x00"
	for _, want := range []string{
		"--volume\x00/run/secrets/licence:/run/secrets/licence:ro\x00", "--volume\x00/host/lib/modules:/host/lib/modules:ro\x00",
		"--build-arg\x00A=b c; d\x00", "--build-arg\x00KERNEL_FULL_VERSION=" + kernelVersion + "\x00", "--tls-verify=false\x00",
		"--platform\x00linux/amd64\x00",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "builds": "here"},
		pod.NodeSelector); diff != "" {
		t.Error(diff)
	}
	for _, c := range []corev1.Container{pod.InitContainers[0], pod.Containers[0]} {
		if !slices.Contains(c.Args, "--insecure") {
			t.Errorf("%s does not use plain HTTP: %v", c.Name, c.Args)
		}
	}
	if strings.Contains(pod.InitContainers[1].Args[1], "licence") || strings.Contains(pod.InitContainers[1].Args[1], "b c; d") {
		t.Error("a value is part of the script's text")
	}
}

// TestBuildahHasNoPowersOverTheNode: the capabilities that its user namespace needs, mirrors where
// it looks for them, storage that goes with the pod, and a node's profiles untouched where Pod
// Security may forbid to leave them.
func TestBuildahHasNoPowersOverTheNode(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	for _, host := range []bool{true, false} {
		c := pipeline.Job(img, 1, "New", &pipeline.Options{HostModules: host}).Spec.Template.Spec.InitContainers[1]
		s := c.SecurityContext
		if diff := cmp.Diff(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SETFCAP", "SETGID", "SETUID"}},
			s.Capabilities); diff != "" {
			t.Error(diff)
		}
		if ptr.Deref(s.AllowPrivilegeEscalation, true) || s.Privileged != nil || (s.SeccompProfile != nil) != host ||
			(s.AppArmorProfile != nil) != host {
			t.Errorf("with the host's modules %t: %+v", host, s)
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "environment" && m.MountPath == "/etc/containers/registries.conf.d"
		}) {
			t.Errorf("mirrors are not where Buildah reads them: %+v", c.VolumeMounts)
		}
		if !strings.Contains(c.Args[1], `--root "$DROVER_WORK/storage"`) {
			t.Error("layers are kept outside of the pod's volumes")
		}
	}
}

// TestLayersAreMountedWithinARegistry: what an unsigned image in another repository of the same
// registry has is not sent again.
func TestLayersAreMountedWithinARegistry(t *testing.T) {
	for unsigned, want := range map[string]bool{"r.example/unsigned:1": true, "other.example/unsigned:1": false, "": false} {
		j := job(t, signing, func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = unsigned })
		if args := j.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--mount-from") != want {
			t.Errorf("%q: %v", unsigned, args)
		}
	}
}

// TestFailuresTellWhy: the step, and the line of the compiler.
func TestFailuresTellWhy(t *testing.T) {
	img := image(t, module(compiling, signing), nil, "")
	ended := func(name string, code int32, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}
	}
	for name, tc := range map[string]struct {
		given  []corev1.ContainerStatus
		reason string
		says   string
		passes bool
	}{
		"outage": {
			given:  []corev1.ContainerStatus{ended("check", 1, `{"step":"check","reason":"Unavailable","error":"dial tcp: connection refused"}`)},
			reason: v1beta1.ReasonCheckFailed, says: "connection refused", passes: true,
		},
		"token": {given: []corev1.ContainerStatus{ended("push", 1, `{"step":"push","reason":"Unauthorized","error":"401"}`)},
			reason: v1beta1.ReasonPushFailed, says: "401", passes: true},
		"no source": {given: []corev1.ContainerStatus{ended("pull", 1, `{"step":"pull","reason":"Unavailable","error":"503"}`)},
			reason: v1beta1.ReasonSignFailed, says: "503", passes: true},
		"wrong files": {given: []corev1.ContainerStatus{ended("sign", 1, `{"step":"sign","reason":"NothingToSign","error":"no file"}`)},
			reason: v1beta1.ReasonSignFailed, says: "no file"},
		"out of memory": {
			given: []corev1.ContainerStatus{{Name: "build",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "LD m.o\n"}}}},
			reason: v1beta1.ReasonBuildFailed, says: "out of memory: step build needs more than its limit (4Gi)", passes: true,
		},
		"full disk": {given: []corev1.ContainerStatus{ended("build", 1, "cp: error writing 'm.o': No space left on device\n")},
			reason: v1beta1.ReasonBuildFailed, says: "disk is full", passes: true},
		"rate limit": {
			given: []corev1.ContainerStatus{ended("build", 125, "Error: initializing source docker://gcc:12: toomanyrequests: You have reached "+
				"your pull rate limit\n")},
			reason: v1beta1.ReasonBuildFailed, says: "limits the rate of requests", passes: true,
		},
		"compiler": {
			given: []corev1.ContainerStatus{ended("check", 0, `{"step":"check","state":"Missing"}`),
				ended("build", 2, "CC m.o\nm.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1\n")},
			reason: v1beta1.ReasonBuildFailed, says: "m.c:3:1: error: expected ';'",
		},
		"signer": {given: []corev1.ContainerStatus{ended("sign", 1, `{"step":"sign","error":"the key does not belong to the certificate"}`)},
			reason: v1beta1.ReasonSignFailed, says: "the key does not belong"},
		"registry": {given: []corev1.ContainerStatus{ended("check", 1, `{"step":"check","error":"401"}`)}, reason: v1beta1.ReasonCheckFailed,
			says: "401", passes: true},
		"push": {given: []corev1.ContainerStatus{ended("push", 1, "plain text error\n")}, reason: v1beta1.ReasonPushFailed,
			says: "plain text error", passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := pipeline.Job(img, 1, "New", options())
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: j.Name}}, Status: corev1.PodStatus{
				Phase: corev1.PodFailed, InitContainerStatuses: tc.given,
			}}
			runs := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, []corev1.Pod{pod})
			if r := runs[0]; !r.Failed || r.Outcome.Reason != tc.reason || !strings.Contains(r.Outcome.Message, tc.says) ||
				r.Outcome.Passing != tc.passes {
				t.Errorf("%+v", runs[0].Outcome)
			}
		})
	}
}

// TestResultsAreKeptWhole: a kubelet keeps 12 KiB of what all containers of a pod tell, each the
// same share.
func TestResultsAreKeptWhole(t *testing.T) {
	longest := 0
	for name, given := range map[string][]func(*v1beta1.Module){
		"Dockerfile": {signing}, "native": {compiling, signing},
		"native from a ConfigMap, unsigned pushed too": {compiling, signing, func(m *v1beta1.Module) {
			container(m).Sign.UnsignedImage = "r.example/u:1"
			container(m).Build.Native.SourceImage, container(m).Build.Native.SourceConfigMap = "", ref("source")
		}},
	} {
		pod := fetching(t, given...).Spec.Template.Spec
		containers := len(pod.InitContainers) + len(pod.Containers)
		if longest = max(longest, containers); result.MaxMessage > 12<<10/containers {
			t.Errorf("%s: %d bytes of each of %d containers do not fit", name, result.MaxMessage, containers)
		}
	}
	if longest != 8 {
		t.Errorf("the longest Job has %d containers: say so at result.MaxMessage", longest)
	}
}

// TestJobsLeaveLostNodesSoon: whatever the Module tolerates, for the first toleration of a taint
// counts.
func TestJobsLeaveLostNodesSoon(t *testing.T) {
	pod := job(t, func(m *v1beta1.Module) {
		m.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}).Spec.Template.Spec
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		i := slices.IndexFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" || t.Key == key })
		if i < 0 || pod.Tolerations[i].TolerationSeconds == nil || *pod.Tolerations[i].TolerationSeconds != 60 {
			t.Errorf("%s: tolerations are %v", key, pod.Tolerations)
		}
	}
	if last := pod.Tolerations[len(pod.Tolerations)-1]; last.Key != "" || last.TolerationSeconds != nil {
		t.Errorf("the Module's own toleration is %v", last)
	}
}
