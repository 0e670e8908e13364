// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/reasons"
)

var update = flag.Bool("update", false, "write the golden files")

func module() *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", UID: types.UID("7b1f"), Generation: 3},
		Spec:       v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{}},
	}
}

func config() *v1beta1.ModuleConfig {
	return &v1beta1.ModuleConfig{
		KernelVersion:   "6.1.0-37-amd64",
		ContainerImage:  "registry.example/nic:6.1.0-37-amd64",
		ImagePullPolicy: corev1.PullIfNotPresent,
		Modprobe:        v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"},
	}
}

func TestID(t *testing.T) {
	base, err := delivery.ID(module(), config(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(base) != 32 {
		t.Errorf("an id has 32 digits, got %q", base)
	}
	cases := map[string]struct {
		change func(*v1beta1.Module, *v1beta1.ModuleConfig)
		same   bool
	}{
		"the Module's generation does not matter": {same: true, change: func(m *v1beta1.Module, _ *v1beta1.ModuleConfig) { m.Generation = 9 }},
		"nor does its device plugin": {same: true, change: func(m *v1beta1.Module, _ *v1beta1.ModuleConfig) {
			m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{}
		}},
		"nor do parameters": {same: true,
			change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.Modprobe.Parameters = []string{"a=1"} }},
		"nor do empty arguments": {same: true,
			change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.Modprobe.Args = &v1beta1.ModprobeArgs{} }},
		"nor does the ServiceAccount while images are not always pulled": {same: true, change: func(m *v1beta1.Module, _ *v1beta1.ModuleConfig) {
			m.Spec.ModuleLoader.ServiceAccountName = "other"
		}},
		"another image":         {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.ContainerImage += "-2" }},
		"another kernel":        {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.KernelVersion = "6.12.1" }},
		"another kernel module": {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.Modprobe.ModuleName = "nic2" }},
		"another directory":     {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.Modprobe.DirName = "/usr" }},
		"another order": {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) {
			c.Modprobe.ModulesLoadingOrder = []string{"nic", "core"}
		}},
		"firmware":            {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) { c.Modprobe.FirmwarePath = "/firmware" }},
		"the rebuild trigger": {change: func(m *v1beta1.Module, _ *v1beta1.ModuleConfig) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(1) }},
		"modprobe with arguments": {change: func(_ *v1beta1.Module, c *v1beta1.ModuleConfig) {
			c.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-v"}}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, c := module(), config()
			tc.change(m, c)
			got, err := delivery.ID(m, c, "")
			if err != nil {
				t.Fatal(err)
			}
			if (got == base) != tc.same {
				t.Errorf("same id = %t, want %t", got == base, tc.same)
			}
		})
	}
}

func TestIDWithPullAlways(t *testing.T) {
	id := func(serviceAccount string, plugin *v1beta1.DevicePluginSpec) string {
		m, c := module(), config()
		c.ImagePullPolicy = corev1.PullAlways
		m.Spec.ModuleLoader.ServiceAccountName = serviceAccount
		m.Spec.DevicePlugin = plugin
		got, err := delivery.ID(m, c, "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if id("a", nil) == id("b", nil) {
		t.Error("with imagePullPolicy Always every change of spec.moduleLoader delivers again")
	}
	if id("a", nil) != id("a", &v1beta1.DevicePluginSpec{}) {
		t.Error("the device plugin never matters")
	}
}

func TestModeForNode(t *testing.T) {
	cases := map[string]struct {
		kubelet, runtime string
		mode, then       delivery.Mode
	}{
		"new kubelet, new containerd":      {"v1.36.3", "containerd://2.1.4", delivery.ModeAuto, delivery.ModeImageVolume},
		"the zero mode is auto":            {"v1.36.3", "containerd://2.1.4", "", delivery.ModeImageVolume},
		"vendors' suffixes":                {"v1.35.2+k3s1", "containerd://2.2.0-k3s1", delivery.ModeAuto, delivery.ModeImageVolume},
		"a release candidate":              {"v1.35.0-rc.1", "containerd://2.1.0-rc.0", delivery.ModeAuto, delivery.ModeImageVolume},
		"containerd too old":               {"v1.36.3", "containerd://2.0.7", delivery.ModeAuto, delivery.ModeInitContainer},
		"kubelet too old":                  {"v1.34.9", "containerd://2.1.4", delivery.ModeAuto, delivery.ModeInitContainer},
		"CRI-O":                            {"v1.35.0", "cri-o://1.35.1", delivery.ModeAuto, delivery.ModeImageVolume},
		"CRI-O too old":                    {"v1.35.0", "cri-o://1.30.9", delivery.ModeAuto, delivery.ModeInitContainer},
		"an unknown runtime":               {"v1.36.0", "docker://28.0.0", delivery.ModeAuto, delivery.ModeInitContainer},
		"a node that has not reported yet": {"", "", delivery.ModeAuto, delivery.ModeInitContainer},
		"forced to init containers":        {"v1.36.3", "containerd://2.1.4", delivery.ModeInitContainer, delivery.ModeInitContainer},
		"forced to image volumes":          {"v1.31.0", "containerd://1.7.0", delivery.ModeImageVolume, delivery.ModeImageVolume},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.mode.For(&corev1.NodeSystemInfo{KubeletVersion: tc.kubelet, ContainerRuntimeVersion: tc.runtime})
			if got != tc.then {
				t.Errorf("mode %s, want %s", got, tc.then)
			}
		})
	}
	if _, err := delivery.ParseMode("volume"); err == nil {
		t.Error("an unknown mode is refused")
	}
}

func TestCarrier(t *testing.T) {
	full := config()
	full.Modprobe.ModulesLoadingOrder = []string{"nic", "core"}
	full.Modprobe.FirmwarePath = "firmware"
	full.Modprobe.RawArgs = &v1beta1.ModprobeArgs{Load: []string{"nic"}, Unload: []string{"-r", "nic"}}
	withSecret := module()
	withSecret.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "pull"}
	withSecret.Spec.ModuleLoader.ServiceAccountName = "loader"
	cases := map[string]delivery.Request{
		"image-volume":   {Module: module(), Config: config(), Mode: delivery.ModeImageVolume},
		"init-container": {Module: withSecret, Config: full, Mode: delivery.ModeInitContainer, User: ptr.To[int64](65532)},
	}
	for name, request := range cases {
		t.Run(name, func(t *testing.T) {
			request.ID, request.Node, request.AgentImage = "0123456789abcdef0123456789abcdef", "node-1", "registry.example/drover-agent:v1"
			carrier := delivery.Carrier(&request)
			if got := delivery.ModeOf(carrier); got != request.Mode {
				t.Errorf("the mode is read as %s", got)
			}
			got, err := yaml.Marshal(carrier)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "carrier-"+name+".yaml", got)
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), refresh with -update:\n%s", file, diff)
	}
}

func TestProblemOf(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "export", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	initCrash := corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "copy", Image: "nic:1",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}}
	cases := map[string]struct {
		given corev1.PodStatus
		then  *reasons.Problem
	}{
		"on its way": {given: waiting("ContainerCreating", "")},
		"running":    {given: corev1.PodStatus{Phase: corev1.PodRunning}},
		"no such image": {
			given: waiting("ErrImagePull", "failed to resolve reference: nic:1: not found"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonImageNotFound, Message: "failed to resolve reference: nic:1: not found"},
		},
		"a registry that cannot be reached, from a port that looks like a code": {
			given: waiting("ErrImagePull", "dial tcp 10.0.0.7:40412->10.0.0.9:443: i/o timeout"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: "dial tcp 10.0.0.7:40412->10.0.0.9:443: i/o timeout"},
		},
		"a kernel that looks like a code": {
			given: waiting("ErrImagePull", "nic:5.14.0-404.el9: connection refused"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: "nic:5.14.0-404.el9: connection refused"},
		},
		"an image for other processors": {
			given: waiting("ErrImagePull", "no match for platform in manifest sha256:1: not found"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: "no match for platform in manifest sha256:1: not found"},
		},
		"a registry that answers by a code": {
			given: waiting("ErrImagePull", "unexpected status code 404 for nic:1"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonImageNotFound, Message: "unexpected status code 404 for nic:1"},
		},
		"no right to pull": {
			given: waiting("ImagePullBackOff", "failed to authorize: 401 Unauthorized"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullUnauthorized, Message: "failed to authorize: 401 Unauthorized"},
		},
		"no right to pull the agent's own image": {
			given: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "export", Image: "mirror.example.com/drover-agent:1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "ErrImagePull", Message: `failed to pull image "mirror.example.com/drover-agent:1": 401 Unauthorized`,
				}},
			}}},
			then: &reasons.Problem{
				Reason: v1beta1.ReasonAgentImageUnauthorized, Message: `failed to pull image "mirror.example.com/drover-agent:1": 401 Unauthorized`,
			},
		},
		"registry down": {
			given: waiting("ErrImagePull", "dial tcp 10.0.0.1:443: connect: connection refused"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: "dial tcp 10.0.0.1:443: connect: connection refused"},
		},
		"not a reference": {
			given: waiting("InvalidImageName", "couldn't parse"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: "InvalidImageName: couldn't parse"},
		},
		"the runtime cannot mount images": {
			given: waiting("CreateContainerError", "no image volume"),
			then:  &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "CreateContainerError: no image volume"},
		},
		"the image has no tree for this kernel": {
			given: initCrash,
			then:  &reasons.Problem{Reason: v1beta1.ReasonImageUnreadable, Message: "container copy of image nic:1 ended with exit code 1"},
		},
		"the kubelet refused the pod": {
			given: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "Node didn't have enough resource"},
			then:  &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "carrier pod c: OutOfpods: Node didn't have enough resource"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: tc.given}
			if diff := cmp.Diff(tc.then, delivery.ProblemOf(pod)); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}

func TestACarrierIsKnownByItsName(t *testing.T) {
	label := map[string]string{v1beta1.CarrierLabel: ""}
	for name, tc := range map[string]struct {
		given metav1.ObjectMeta
		then  bool
	}{
		"a carrier":         {metav1.ObjectMeta{Name: delivery.CarrierName("team", "nic", "n", "id"), Labels: label}, true},
		"a pod in disguise": {metav1.ObjectMeta{Name: "innocent", Labels: label}, false},
		"no label":          {metav1.ObjectMeta{Name: delivery.CarrierName("team", "nic", "n", "id")}, false},
	} {
		if got := delivery.IsCarrier(&tc.given); got != tc.then {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRunningSince(t *testing.T) {
	early := time.Unix(1_800_000_000, 0)
	running := func(at time.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}
	}
	for name, tc := range map[string]struct {
		given []corev1.ContainerStatus
		since time.Time
		runs  bool
	}{
		"no status yet":          {},
		"one runs":               {[]corev1.ContainerStatus{running(early)}, early, true},
		"the last one counts":    {[]corev1.ContainerStatus{running(early.Add(time.Second)), running(early)}, early.Add(time.Second), true},
		"one does not run (yet)": {[]corev1.ContainerStatus{running(early), {}}, time.Time{}, false},
	} {
		since, runs := delivery.RunningSince(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: tc.given}})
		if !since.Equal(tc.since) || runs != tc.runs {
			t.Errorf("%s: since %s, runs %t", name, since, runs)
		}
	}
}

// TestMadeImagesAreTheirInputs: other inputs are another delivery, and an image that was not made
// here has the identity that it always had.
func TestMadeImagesAreTheirInputs(t *testing.T) {
	ids := map[string]bool{}
	for _, made := range []string{"", "a", "b", "a"} {
		id, err := delivery.ID(module(), config(), made)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d deliveries of no inputs, a and b", len(ids))
	}
}
