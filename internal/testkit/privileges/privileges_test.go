// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/testkit/privileges"
)

const (
	daemonSet = "../../../config/agent/daemonset.yaml"
	document  = "../../../docs/reference/privileges.md"
)

func pod(t *testing.T) *corev1.PodSpec {
	t.Helper()
	ds, err := privileges.Read(daemonSet)
	if err != nil {
		t.Fatal(err)
	}
	return &ds.Spec.Template.Spec
}

// row is a row of the document's first table: `item` | use | what breaks | shown.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|")

// Each thing the agent is allowed has a row in the document, with a use and with what breaks, and
// each row is of something that it is allowed.
func TestDocumentHasEveryItem(t *testing.T) {
	items, err := privileges.List(pod(t))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, item := range items {
		want = append(want, item.Name)
	}
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		got = append(got, m[1])
		if strings.TrimSpace(m[2]) == "" || strings.TrimSpace(m[3]) == "" {
			t.Errorf("%s has no use, or nothing that breaks", m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("items of the DaemonSet and of %s (-DaemonSet +document):\n%s", document, diff)
	}
}

// What takes an item away takes that one away and nothing else.
func TestRemove(t *testing.T) {
	items, err := privileges.List(pod(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		t.Run(item.Name, func(t *testing.T) {
			less := pod(t)
			item.Remove(less)
			left, err := privileges.List(less)
			if err != nil {
				t.Fatal(err)
			}
			gone := 1
			if name, ok := strings.CutPrefix(item.Name, "mount "); ok { // with all that it has
				gone = len(slices.DeleteFunc(slices.Clone(items),
					func(i privileges.Item) bool { _, of, _ := strings.Cut(i.Name, " "); return of != name }))
			}
			if len(left) != len(items)-gone || slices.ContainsFunc(left, func(i privileges.Item) bool { return i.Name == item.Name }) {
				t.Errorf("%d items are left of %d", len(left), len(items))
			}
		})
	}
}

// Nothing is granted unnoticed.
func TestListRefuses(t *testing.T) {
	yes := true
	both := corev1.MountPropagationBidirectional
	for name, grant := range map[string]func(*corev1.PodSpec){
		"hostPID":              func(p *corev1.PodSpec) { p.HostPID = true },
		"hostIPC":              func(p *corev1.PodSpec) { p.HostIPC = true },
		"privileged":           func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Privileged = &yes },
		"privilege escalation": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes },
		"a writable root":      func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil },
		"default capabilities": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities.Drop = nil },
		"no seccomp": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		},
		"the pod's own":       func(p *corev1.PodSpec) { p.SecurityContext = &corev1.PodSecurityContext{} },
		"another container":   func(p *corev1.PodSpec) { p.InitContainers = make([]corev1.Container, 1) },
		"a mount to the host": func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].MountPropagation = &both },
		"an unused volume":    func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, corev1.Volume{Name: "more"}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t)
			grant(p)
			if _, err := privileges.List(p); err == nil {
				t.Error("it is not refused")
			}
		})
	}
}

// TestNoPtrace: the component takes away that one capability and nothing else.
func TestNoPtrace(t *testing.T) {
	files := filesys.MakeFsInMemory()
	for name, source := range map[string]string{
		"/agent/daemonset.yaml": daemonSet, "/agent/kustomization.yaml": "../../../config/agent/kustomization.yaml",
		"/no-ptrace/kustomization.yaml": "../../../config/no-ptrace/kustomization.yaml",
	} {
		content, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.WriteFile("/all/kustomization.yaml", []byte("resources: [../agent]\ncomponents: [../no-ptrace]\n")); err != nil {
		t.Fatal(err)
	}
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/all")
	if err != nil {
		t.Fatal(err)
	}
	content, err := all.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	got := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(content, got); err != nil {
		t.Fatal(err)
	}
	want := pod(t)
	caps := want.Containers[0].SecurityContext.Capabilities
	caps.Add = slices.DeleteFunc(caps.Add, func(c corev1.Capability) bool { return c == "SYS_PTRACE" })
	want.Containers[0].SecurityContext.AppArmorProfile = nil
	if len(caps.Add) != 3 {
		t.Errorf("capabilities %v", caps.Add)
	}
	if diff := cmp.Diff(want, &got.Spec.Template.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
