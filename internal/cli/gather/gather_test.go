// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestMain is also the program that the image's script starts.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "drover" {
		os.Exit(asProgram())
	}
	os.Exit(env.Main(m))
}

// What must be nowhere in the archive.
const (
	inSecret = "value-of-a-secret"
	inEnv    = "value-of-a-variable"
	inBuild  = "value-of-a-build-argument"
	inArgs   = "value-on-a-command-line"
)

// unpack reads an archive: its files, by their names without the folder.
func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	stream, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

// someCluster has a Module with secrets of every kind, a pod of its plugin, and an agent's.
func someCluster(t *testing.T) (e *env.Env, namespace string) {
	t.Helper()
	e = env.Get(t)
	namespace = e.Namespace(t)
	container := corev1.Container{Name: "c", Image: "example.com/i", Args: []string{"--license-key=" + inArgs}, Env: []corev1.EnvVar{
		{Name: "PLAIN", Value: inEnv},
		{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}},
	}}
	pod := func(name string, labels map[string]string) *corev1.Pod {
		labels["app.kubernetes.io/part-of"] = "drover"
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	}
	agent := pod("agent", map[string]string{programLabel: "drover-agent"})
	agent.Spec.Containers[0].Args = []string{"run", "--host-root=/host"}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s", Labels: map[string]string{
			"app.kubernetes.io/part-of": "drover"}}, StringData: map[string]string{"k": inSecret}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}, Data: map[string]string{"k": inSecret}},
		&v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic",
			Labels: map[string]string{programLabel: "nic"}}, Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"no": "node"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic", Parameters: []string{"debug=1"}},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: "example.com/nic:1"}},
				Build: &v1beta1.Build{BuildArgs: []v1beta1.BuildArg{{Name: "TOKEN", Value: inBuild}},
					DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}},
			}},
			DevicePlugin: &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{
				Image: container.Image, Args: container.Args, Env: container.Env}},
		}},
		pod("plugin", map[string]string{v1beta1.ModuleNameLabel: "nic", v1beta1.RoleLabel: v1beta1.RoleDevicePlugin}), agent,
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Message: "the build says " + inBuild,
			InvolvedObject: corev1.ObjectReference{Kind: "Module", Namespace: namespace, Name: "nic"}},
	} {
		if err := e.Admin(t).Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return e, namespace
}

// TestWhatIsOurs is what may keep its command line.
func TestWhatIsOurs(t *testing.T) {
	const carrier, ofModule = v1beta1.CarrierLabel, v1beta1.ModuleNameLabel
	for name, tc := range map[string]struct {
		kind   string
		labels map[string]string
		then   bool
	}{
		"an agent":                      {"Pod", map[string]string{programLabel: "drover-agent"}, true},
		"agents":                        {"DaemonSet", map[string]string{programLabel: "drover-agent"}, true},
		"an agent at boot":              {"Pod", map[string]string{programLabel: "drover-boot"}, true},
		"a hub":                         {"Deployment", map[string]string{programLabel: "drover-hub"}, true},
		"the chart's last Job":          {"Job", map[string]string{programLabel: "drover-release"}, true},
		"a device operator":             {"Deployment", map[string]string{programLabel: "deviceconfig-operator"}, true},
		"a carrier":                     {"Pod", map[string]string{carrier: "", ofModule: "nic"}, true},
		"a labelled Module":             {"Module", map[string]string{programLabel: "nic"}, false},
		"a Module that says it is ours": {"Module", map[string]string{programLabel: "drover-agent"}, false},
		"a Module as a carrier":         {"Module", map[string]string{carrier: ""}, false},
		"a Module for spokes":           {"ManagedClusterModule", map[string]string{programLabel: "drover-operator"}, false},
		"a foreign pod":                 {"Pod", map[string]string{programLabel: "nic"}, false},
		"a plugin":                      {"Pod", map[string]string{programLabel: "drover-agent", ofModule: "nic"}, false},
		"a pod without labels":          {"Pod", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			o.SetKind(tc.kind)
			o.SetLabels(tc.labels)
			if got := ours(o); got != tc.then {
				t.Errorf("ours is %t", got)
			}
		})
	}
}

// nothingSecret fails for what must not be in a file.
func nothingSecret(t *testing.T, files map[string]string) {
	t.Helper()
	for name, content := range files {
		for _, secret := range []string{inSecret, inEnv, inBuild, inArgs} {
			if strings.Contains(content, secret) {
				t.Errorf("%s has the %s:\n%s", name, secret, content)
			}
		}
	}
}

// TestGather runs the command as an administrator, who could read the Secret.
func TestGather(t *testing.T) {
	e, namespace := someCluster(t)
	name := filepath.Join(t.TempDir(), "it.tar.gz")
	said, code := clitest.Run(t, e.AdminConfig(), "default", NewCommand, "--output", name)
	if code != 0 || !strings.Contains(said, name) {
		t.Fatalf("exit code %d: %s", code, said)
	}
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v (%v)", info.Mode(), err)
	}
	files := unpack(t, packed)
	nothingSecret(t, files)
	for file, says := range map[string][]string{
		"version.txt": {"drover "}, "definitions.yaml": {"modules.kmm.sigs.x-k8s.io"},
		"objects/modules.kmm.sigs.x-k8s.io.yaml": {"name: nic", "debug=1", "name: TOKEN", removed},
		"objects/pods.yaml":                      {"name: plugin", "--host-root=/host", "secretKeyRef", removed},
		"events.yaml":                            {"the build says " + removed},
		"explain/" + namespace + "/nic.txt":      {"nic"},
		"objects/validatingadmissionpolicies.admissionregistration.k8s.io.yaml": {"drover-carriers"},
		"notes.txt": {"Nothing is missing."},
	} {
		for _, word := range says {
			if !strings.Contains(files[file], word) {
				t.Errorf("%s does not say %q:\n%s", file, word, files[file])
			}
		}
	}
	// No kubelet has written any: an empty one.
	if log, ok := files["logs/"+namespace+"/agent/c.log"]; !ok || log != "" {
		t.Errorf("the agent's log is there: %t, %q", ok, log)
	}
	if said, code := clitest.Run(t, e.AdminConfig(), "default", NewCommand, "--output", name); code == 0 {
		t.Errorf("it is overwritten: %s", said)
	}
}

// TestGatherForWhoMaySeeLittle: what is missing is named, and is no failure.
func TestGatherForWhoMaySeeLittle(t *testing.T) {
	e, namespace := someCluster(t)
	name := filepath.Join(t.TempDir(), "it.tar.gz")
	if said, code := clitest.Run(t, e.UserConfig(t, "nobody-"+namespace), "default", NewCommand, "--output", name); code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, packed)
	if diff := cmp.Diff([]string{"notes.txt", "version.txt"}, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Error(diff)
	}
	for _, word := range []string{"not read: customresourcedefinitions", "not read: pods", "forbidden"} {
		if !strings.Contains(files["notes.txt"], word) {
			t.Errorf("the notes do not say %q:\n%s", word, files["notes.txt"])
		}
	}
}

// TestLogs: those of our own programs alone, of no more pods and with no more bytes than asked for,
// and without what objects have shown to be secret.
func TestLogs(t *testing.T) {
	e, namespace := someCluster(t)
	var asked []string
	logs := func(_ context.Context, where, pod, container string, previous bool) (io.ReadCloser, error) {
		if where == namespace {
			asked = append(asked, fmt.Sprintf("%s/%s %t", pod, container, previous))
		}
		return io.NopCloser(strings.NewReader("it says " + inEnv + strings.Repeat(" more", 100))), nil
	}
	client, err := dynamic.NewForConfig(e.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(client, logs, 1000, 200)
	if err := c.everything(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"agent/c false"}, asked); diff != "" {
		t.Error(diff)
	}
	var out bytes.Buffer
	if _, err := c.write(&out, "f", time.Unix(0, 0), 1<<30, c.text); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, out.Bytes())
	nothingSecret(t, files)
	log := files["logs/"+namespace+"/agent/c.log"]
	if !strings.HasPrefix(log, "it says "+removed) || len(log) > 200 {
		t.Errorf("the log has %d bytes: %s", len(log), log)
	}
	less := newCollector(client, logs, 0, 200)
	if err := less.everything(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(less.notes, func(n string) bool { return strings.HasPrefix(n, "not all: logs of 0 of ") }) {
		t.Errorf("notes %q", less.notes)
	}
}

// TestBounds: what does not fit is left out, and named.
func TestBounds(t *testing.T) {
	b := &bundle{}
	b.add("small.txt", "1234")
	b.add("large.txt", strings.Repeat("x", 100))
	b.add("last.txt", "5678")
	var out bytes.Buffer
	written, err := b.write(&out, "f", time.Unix(0, 0), 10, func(s string) string { return s })
	if err != nil || written != 8 {
		t.Errorf("%d bytes are written (%v)", written, err)
	}
	want := map[string]string{"small.txt": "1234", "last.txt": "5678",
		"notes.txt": "left out, because it is beyond --max-bytes: large.txt (100 bytes)\n"}
	if diff := cmp.Diff(want, unpack(t, out.Bytes())); diff != "" {
		t.Error(diff)
	}
}
