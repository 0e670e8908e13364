// SPDX-License-Identifier: Apache-2.0

package security

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestPodsWithSecretsAreKeptToNodes: whichever way a Secret reaches a pod, it is found, and the pod
// must be kept to nodes by more than their processor.
func TestPodsWithSecretsAreKeptToNodes(t *testing.T) {
	local := corev1.LocalObjectReference{Name: "s"}
	volume := func(source corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}}
	}
	for name, pod := range map[string]corev1.PodSpec{
		"a volume":     volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		"a CSI driver": volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &local}}),
		"a projected volume": volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: local}}},
		}}),
		"a variable": {InitContainers: []corev1.Container{{Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local}}}}}}},
		"variables": {Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local}},
		}}}},
		"a pull": {ImagePullSecrets: []corev1.LocalObjectReference{local}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string{"`s`"}, secretsOf(&pod)); diff != "" {
				t.Error(diff)
			}
			pod.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "arm64"}
			if nodes := seenBy(&pod); nodes != "" {
				t.Errorf("kept to nodes of a processor only, and said to be seen by %s", nodes)
			}
			pod.NodeSelector["gpu"] = "true"
			if nodes := seenBy(&pod); nodes != "those with `gpu=true`" {
				t.Errorf("seen by %q", nodes)
			}
		})
	}
}

// TestNoOtherPodsAreRendered: who writes code that makes one more kind of pod adds it to
// [rendered], or says here where its Secrets are looked at.
func TestNoOtherPodsAreRendered(t *testing.T) {
	known := map[string]string{
		"internal/shared/delivery/carrier.go":            "carriers",
		"internal/operator/controller/plugin/desired.go": "workloadPods",
		"internal/build/pipeline/job.go":                 "builds",
		"internal/operator/cache.go":                     "what the cache keeps of a pod",
		"internal/operators/lolcow/deployment.go":        "it has no Secret",
		"internal/operators/ptemplate/consumer.go":       "it runs where the Module is ready: a test of its package",
	}
	found := map[string]bool{}
	for _, top := range []string{"internal", "cmd", "kit"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testkit/") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				literal, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				if of, ok := literal.Type.(*ast.SelectorExpr); ok && of.Sel.Name == "PodSpec" {
					rel, _ := filepath.Rel(root, file)
					found[filepath.ToSlash(rel)] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("files that make pods (-known +found):\n%s", diff)
	}
}
