// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	agentconfig "github.com/drover-project/drover/config/agent"
	"github.com/drover-project/drover/internal/agent/statefile"
)

func podOptions(state, manifests string) PodOptions {
	return PodOptions{
		NodeName: "node-1", Image: "registry.example/agent@sha256:1", HostRoot: filepath.Dir(manifests), StateDir: state,
		StatePath:   "/data/drover",
		FirmwareDir: "/var/lib/firmware", ManifestDir: manifests,
	}
}

// TestStaticPodIsTheDaemonSets, but for what is named here: a privilege or mount that one of them
// gains or loses has to be decided for both.
func TestStaticPodIsTheDaemonSets(t *testing.T) {
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(agentconfig.DaemonSet, &set); err != nil {
		t.Fatal(err)
	}
	o := podOptions("/var/lib/drover", "/host/etc/kubernetes/manifests")
	o.HostRoot = "/host"
	data, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(data, &pod); err != nil {
		t.Fatal(err)
	}
	want, got := set.Spec.Template.Spec, pod.Spec
	caps := want.Containers[0].SecurityContext.Capabilities
	caps.Add = slices.DeleteFunc(caps.Add, func(c corev1.Capability) bool { return c == "SYS_PTRACE" }) // it serves the names of holders
	want.Containers[0].SecurityContext.AppArmorProfile = nil                                            // as does this
	differ := cmp.FilterPath(func(p cmp.Path) bool {
		switch p.Last().String() {
		case ".ServiceAccountName", ".AutomountServiceAccountToken", ".DNSPolicy", ".NodeSelector", ".Priority", ".Name", ".Image", ".Args",
			".Env", ".Volumes", ".VolumeMounts":
			return true
		}
		return false
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, differ); diff != "" {
		t.Errorf("the pods (-DaemonSet +static):\n%s", diff)
	}
	mounts := func(c corev1.Container, but ...string) []corev1.VolumeMount {
		return cmpIgnore(c.VolumeMounts, func(m corev1.VolumeMount) string { return m.Name }, but)
	}
	volumes := func(s corev1.PodSpec, but ...string) []corev1.Volume {
		return cmpIgnore(s.Volumes, func(v corev1.Volume) string { return v.Name }, but)
	}
	sorted := cmpopts.SortSlices(func(a, b corev1.Volume) bool { return a.Name < b.Name })
	if diff := cmp.Diff(mounts(want.Containers[0], "pods", "pod-logs"), mounts(got.Containers[0], "boot-manifests")); diff != "" {
		t.Errorf("mounts (-DaemonSet +static):\n%s", diff)
	}
	if diff := cmp.Diff(volumes(want, "pods", "pod-logs", "state"), volumes(got, "boot-manifests", "state"), sorted); diff != "" {
		t.Errorf("volumes (-DaemonSet +static):\n%s", diff)
	}
	for _, v := range got.Volumes {
		switch v.Name {
		case "state":
			if v.HostPath.Path != "/data/drover" {
				t.Errorf("the state is at %s", v.HostPath.Path)
			}
		case "boot-manifests":
			if v.HostPath.Path != "/etc/kubernetes/manifests" {
				t.Errorf("the manifests are at %s", v.HostPath.Path)
			}
		}
	}
	c := got.Containers[0]
	if pod.Namespace != "drover-system" || pod.Labels["app.kubernetes.io/name"] == set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] ||
		got.ServiceAccountName != "" || *got.AutomountServiceAccountToken || *got.Priority != nodeCritical || len(got.NodeSelector) > 0 ||
		c.Image != o.Image || c.ImagePullPolicy != corev1.PullIfNotPresent || c.Args[0] != "boot" {
		t.Errorf("%s", data)
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			t.Errorf("%s is taken from elsewhere", e.Name)
		}
	}
}

func cmpIgnore[T any](all []T, name func(T) string, but []string) []T {
	var out []T
	for _, v := range all {
		if !strings.Contains(" "+strings.Join(but, " ")+" ", " "+name(v)+" ") {
			out = append(out, v)
		}
	}
	return out
}

func TestRenderNeedsAll(t *testing.T) {
	for name, change := range map[string]func(*PodOptions){
		"no image":                  func(o *PodOptions) { o.Image = "" },
		"no node":                   func(o *PodOptions) { o.NodeName = "" },
		"no state":                  func(o *PodOptions) { o.StatePath = "" },
		"manifests not on the host": func(o *PodOptions) { o.ManifestDir = "/etc/kubernetes/manifests" },
	} {
		o := podOptions("/var/lib/drover", "/host/manifests")
		change(&o)
		if _, err := Render(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestEnable writes once, again when something changed, and never over a file that is not ours.
func TestEnable(t *testing.T) {
	state, manifests := t.TempDir(), t.TempDir()
	file := filepath.Join(manifests, ManifestFile)
	o := podOptions(state, manifests)
	enable := func() os.FileInfo {
		t.Helper()
		if err := Enable(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := enable()
	if !os.SameFile(first, enable()) {
		t.Error("it was written again although nothing changed")
	}
	o.Image = "registry.example/agent@sha256:2"
	if second := enable(); os.SameFile(first, second) {
		t.Error("it was not written again although the image changed")
	}
	if yes, err := wanted(state); !yes || err != nil {
		t.Errorf("wanted: %v, %v", yes, err)
	}
	left, err := os.ReadDir(manifests)
	if err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v", left, err)
	}
}

func TestForeignManifestIsLeftAlone(t *testing.T) {
	for name, put := range map[string]func(name string) error{
		"somebody's file": func(name string) error { return os.WriteFile(name, []byte("kind: Pod\n"), 0o600) },
		"an empty file":   func(name string) error { return os.WriteFile(name, nil, 0o600) },
		"a link": func(name string) error {
			target := name + "-target"
			return errors.Join(os.WriteFile(target, []byte(mark), 0o600), os.Symlink(target, name))
		},
		"a directory": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			state, manifests := t.TempDir(), t.TempDir()
			file := filepath.Join(manifests, ManifestFile)
			if err := put(file); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := Enable(t.Context(), podOptions(state, manifests)); !errors.Is(err, errNotOurs) {
				t.Errorf("enable: %v", err)
			}
			if gone, err := withdraw(manifests); gone || !errors.Is(err, errNotOurs) {
				t.Errorf("withdraw: %v, %v", gone, err)
			}
			after, err := os.Lstat(file)
			if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("it was changed: %v, %v", after, err)
			}
		})
	}
}

// TestWithdraw takes what is ours, once.
func TestWithdraw(t *testing.T) {
	manifests := t.TempDir()
	if _, err := put(manifests, append([]byte(mark), bytes.Repeat([]byte("x"), 10)...)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if gone, err := withdraw(manifests); gone != want || err != nil {
			t.Errorf("%v, %v, want %v", gone, err, want)
		}
	}
}

// TestDisableTwice: on most nodes there is nothing to turn off.
func TestDisableTwice(t *testing.T) {
	state := t.TempDir()
	if err := statefile.Replace(state, consentFile, []byte("{}"), 0o600, statefile.NoSync); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Disable(state); err != nil {
			t.Error(err)
		}
	}
}
