// SPDX-License-Identifier: Apache-2.0

package security

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// TestPageIsCurrent: every right has words, every word a right, and the page is made of them.
func TestPageIsCurrent(t *testing.T) {
	want, err := Page(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(root + "/docs/reference/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/reference/security.md: make manifests (-want +got)\n%s", diff)
	}
}

func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

const bound = `
{kind: ServiceAccount, metadata: {name: a, namespace: space}}
---
{kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: [""], resources: [pods, pods/exec], verbs: [create, get]},
 {apiGroups: [x.io], resources: [things/status], resourceNames: [b, a], verbs: [list]}, {nonResourceURLs: [/m], verbs: [get]}]}
---
{kind: ClusterRoleBinding, metadata: {name: rb}, roleRef: {kind: ClusterRole, name: r},
 subjects: [{kind: ServiceAccount, name: a, namespace: space}]}
---
{kind: Role, metadata: {name: r, namespace: space}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
---
{kind: RoleBinding, metadata: {name: rb, namespace: space}, roleRef: {kind: Role, name: r},
 subjects: [{kind: ServiceAccount, name: a, namespace: space}]}
---
{kind: ClusterRole, metadata: {name: people, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}},
 rules: [{apiGroups: [x.io], resources: [things], verbs: ["*"]}]}
`

// TestRights: each verb on each kind is found, whether it is bound in a namespace or everywhere.
func TestRights(t *testing.T) {
	g, err := rightsOf(objects(t, bound))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rowsOf(g.identities["space/a"]) {
		got = append(got, strings.Join([]string{r.on, r.names, r.where, strings.Join(r.verbs, ",")}, "|"))
	}
	want := []string{"pods|||create,get", "pods/exec|||create,get", "/m|||get", "secrets||space|get", "things.x.io/status|a, b||list"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rows := rowsOf(g.unbound["people"]); len(g.unbound) != 1 || len(rows) != 1 || !rows[0].writes || g.aggregated["people"] != "view" {
		t.Errorf("unbound %v, aggregated %v", g.unbound, g.aggregated)
	}
}

// TestStrangersAreRefused: a binding that the page could not show ends it.
func TestStrangersAreRefused(t *testing.T) {
	for name, change := range map[string][2]string{
		"a group":                 {"subjects: [{kind: ServiceAccount, name: a", "subjects: [{kind: Group, name: a"},
		"another ServiceAccount":  {"subjects: [{kind: ServiceAccount, name: a", "subjects: [{kind: ServiceAccount, name: b"},
		"a role that is not here": {"roleRef: {kind: ClusterRole, name: r}", "roleRef: {kind: ClusterRole, name: cluster-admin}"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(bound, change[0], change[1], 1)
			if _, err := rightsOf(objects(t, changed)); err == nil || changed == bound {
				t.Error("it is not refused")
			}
		})
	}
}

// TestNothingIsGrantedUnnoticed: a right without words, and words without a right, are errors.
func TestNothingIsGrantedUnnoticed(t *testing.T) {
	w := &writer{words: map[string]string{key("r", "pods", true): "a", key(anyRole, "pods", false): "b"}, used: map[string]bool{}}
	for _, given := range []row{
		{right: right{role: "r", on: "pods"}, writes: true}, {right: right{role: "other", on: "pods"}},
	} {
		if w.say(&given) == "" {
			t.Errorf("no words on %+v", given)
		}
	}
	if err := w.complaints(); err != nil {
		t.Error(err)
	}
	w.say(&row{right: right{role: "other", on: "pods"}, writes: true})
	w.words[key(anyRole, "secrets", false)] = "c"
	err := w.complaints()
	for _, says := range []string{"does not say what this means: other writes pods", "words for what nobody has: * reads secrets"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
}

func TestReadMeanings(t *testing.T) {
	for name, given := range map[string]string{
		"a cell is missing": "r\treads\tpods\n", "neither": "r\tlooks\tpods\ta\n", "twice": "r\treads\tpods\ta\nr\treads\tpods\tb\n",
	} {
		if words, err := readMeanings(given); err == nil {
			t.Errorf("%s: no error, but %v", name, words)
		}
	}
}

func TestFacts(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	closed := &corev1.SecurityContext{RunAsNonRoot: yes, AllowPrivilegeEscalation: no, ReadOnlyRootFilesystem: yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}
	for name, tc := range map[string]struct {
		given corev1.PodSpec
		want  []string
	}{
		"nothing is said": {
			given: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
			want: []string{"the image's user", "the runtime's capabilities", "can gain privileges", "writable root",
				"seccomp as the kubelet's default", "a token of its ServiceAccount"},
		},
		"privileged on the host's network, which writes to the host": {
			given: corev1.PodSpec{HostNetwork: true, AutomountServiceAccountToken: no, Volumes: []corev1.Volume{{Name: "v", VolumeSource: host}},
				Containers: []corev1.Container{{
					Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: yes}, VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
				}}},
			want: []string{"the host's network", "**privileged**: everything on the node", "**host `/dev`, writable**", "no token"},
		},
		"three containers, one of which is root": {
			given: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				InitContainers: []corev1.Container{{Name: "a", SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](0),
					AllowPrivilegeEscalation: no, ReadOnlyRootFilesystem: yes,
					Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: host},
					{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}},
				Containers: []corev1.Container{{Name: "b", SecurityContext: closed, VolumeMounts: []corev1.VolumeMount{{Name: "v", ReadOnly: true}}},
					{Name: "c", SecurityContext: closed}}},
			want: []string{
				"`a`: **user 0**, the runtime's capabilities, **capability SYS_ADMIN**, gains none, read-only root, seccomp RuntimeDefault",
				"`b`, `c`: not root, no capabilities, gains none, read-only root, seccomp RuntimeDefault",
				"host `/dev`, read-only", "Secret `s`", "a token of its ServiceAccount",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, factsOf(&tc.given)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
