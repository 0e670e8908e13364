// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// manifest has a Module whose images are found by the kernel, beside things that are none.
const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic}
spec:
  selector: {SELECT: "yes"}
  moduleLoader:
    container:
      modprobe: {moduleName: nic}
      kernelMappings:
      - {literal: "6.6.0-built", containerImage: "REGISTRY/none:1", build: {dockerfileConfigMap: {name: x}}}
      - {literal: "6.6.0-gone", containerImage: "REGISTRY/none:1"}
      - {regexp: '^6\.1\.', containerImage: "REGISTRY/${MOD_NAMESPACE}/nic:${KERNEL_FULL_VERSION}"}
---
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: no-loader}
spec:
  selector: {SELECT: "yes"}
  devicePlugin: {container: {image: x}}
`

// shelf is a registry with the image of the kernel, for one platform.
func shelf(t *testing.T, namespace string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	good := synth.Module{Name: "nic", Machine: synth.MachineX86_64}
	// Beside what the Module names, which is not looked at.
	bad := synth.Module{Name: "other", Vermagic: "5.4.0 SMP ", Machine: synth.MachineX86_64}
	index := images.MultiArch(map[string]v1.Image{"amd64": image(t, "amd64", good, bad)})
	if err := images.Push(t.Context(), host+"/"+namespace+"/nic:"+kernel, index); err != nil {
		t.Fatal(err)
	}
	return host
}

func written(t *testing.T, host, selector string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "module.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("REGISTRY", host, "SELECT", selector).Replace(manifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestModulesOfAFile for one kernel: no cluster is asked.
func TestModulesOfAFile(t *testing.T) {
	const namespace = "drivers"
	host := shelf(t, namespace)
	file := written(t, host, "nic")
	cases := map[string]struct {
		args string
		then int
		says []string
	}{
		"its image fits": {args: "--kernel " + kernel, says: []string{
			"Module drivers/nic, kernel " + kernel + ": " + host + "/drivers/nic:" + kernel + " by kernelMappings[2]", "No check failed for kernel",
			"linux/amd64", "ok         nic",
		}},
		"no mapping": {args: "--kernel 4.4.0", then: 1, says: []string{
			"Module drivers/nic, kernel 4.4.0\nThere is no image for kernel 4.4.0: NoKernelMapping.\nNext step: add a mapping",
			"none of the 3 kernelMappings matches",
		}},
		"an image that is not there": {args: "--kernel 6.6.0-gone", then: 1,
			says: []string{"ImageNotFound: the registry does not have it", "Next step: push the image"}},
		"one that is yet to be built": {args: "--kernel 6.6.0-built", says: []string{"unchecked", "the cluster builds or signs it"}},
		"a platform that it lacks": {args: "--kernel " + kernel + " --platform linux/arm64", then: 1,
			says: []string{"PullFailed: the image is not for linux/arm64, only for linux/amd64"}},
		"flags that the Module sets": {args: "--kernel " + kernel + " --module nic", then: 2, says: []string{"filename", "module"}},
		"an image as well": {args: "image --kernel " + kernel, then: 2, says: []string{"give either an IMAGE or, with -f, a file " +
			"with Modules"}},
		"facts of no kernel": {args: "--symvers x", then: 2, says: []string{"--kernel is missing"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, code := clitest.Run(t, &rest.Config{}, namespace, lint.NewCommand, append([]string{"-f", file}, strings.Fields(tc.args)...)...)
			if code != tc.then {
				t.Errorf("it ends with %d, want %d", code, tc.then)
			}
			for _, words := range tc.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
			if strings.Contains(out, "5.4.0") {
				t.Errorf("it looks at modules that the Module does not name:\n%s", out)
			}
		})
	}
}

// TestKernelsOfTheCluster: without --kernel, those of the nodes that the Module selects.
func TestKernelsOfTheCluster(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	host := shelf(t, namespace)
	for name, node := range map[string]struct{ kernel, arch, label string }{
		"a":      {kernel, "amd64", namespace},
		"b":      {kernel + "+", "amd64", namespace},
		"arm":    {kernel, "arm64", namespace},
		"old":    {"5.10.0", "amd64", namespace},
		"chosen": {"4.4.0", "amd64", "by-nobody"},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name, Labels: map[string]string{node.label: "yes"}},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: node.kernel, Architecture: node.arch,
				OperatingSystem: "linux"}},
		}
		if err := admin.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	file := written(t, host, namespace)
	out, code := clitest.Run(t, e.AdminConfig(), namespace, lint.NewCommand, "-f", file, "-o", "json")
	if code != 1 {
		t.Errorf("it ends with %d", code)
	}
	var found lint.Reports
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	type line struct {
		Kernel, Reason string
		Nodes          []string
	}
	var lines []line
	for _, r := range found.Reports {
		l := line{Kernel: r.Kernel, Nodes: r.Nodes}
		for _, f := range r.Findings {
			l.Reason = f.Reason
		}
		lines = append(lines, l)
	}
	want := []line{
		{"5.10.0", "NoKernelMapping", []string{namespace + "-old"}},
		{kernel, "", []string{namespace + "-a"}},
		{kernel, "PullFailed", []string{namespace + "-arm"}},
		{kernel + "+", "", []string{namespace + "-b"}},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}

	nobody := e.UserConfig(t, "nobody-"+namespace)
	if out, code := clitest.Run(t, nobody, namespace, lint.NewCommand, "-f", file); code != 2 || !strings.Contains(out, "forbidden") ||
		!strings.Contains(out, "without --kernel") {
		t.Errorf("who may not see nodes reads, with %d:\n%s", code, out)
	}
	if out, code := clitest.Run(t, e.AdminConfig(), namespace, lint.NewCommand, "-f", written(t, host, "on-no-node")); code != 0 ||
		!strings.Contains(out, "Nothing to check") {
		t.Errorf("a Module that selects no node, with %d:\n%s", code, out)
	}
}
