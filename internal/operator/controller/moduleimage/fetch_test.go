// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestNodesDecideHowABuildReadsImages: by image volumes where each node for it mounts them,
// otherwise by a step before the build.
func TestNodesDecideHowABuildReadsImages(t *testing.T) {
	for kubelet, mounted := range map[string]bool{"v1.31.5": false, "v1.36.0": true} {
		t.Run(kubelet, func(t *testing.T) {
			w := newWorld(t)
			node := &corev1.Node{}
			w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: w.namespace}, node))
			node.Labels[corev1.LabelOSStable], node.Labels[corev1.LabelArchStable] = "linux", "amd64"
			w.must(w.admin.Update(t.Context(), node))
			node.Status.NodeInfo.KubeletVersion, node.Status.NodeInfo.ContainerRuntimeVersion = kubelet, "containerd://2.1.4"
			w.must(w.admin.Status().Update(t.Context(), node))
			// No other test's node may be one for this build.
			w.module.Spec.ModuleLoader.Container.Build = &v1beta1.Build{Selector: map[string]string{"test": w.namespace},
				Native: &v1beta1.NativeBuild{
					ToolchainImage: "r/gcc:12", HeadersImage: "r/headers:1", SourceImage: "r/src:1", Artifacts: []string{"*.ko"},
				}}
			w.must(w.admin.Update(t.Context(), w.module))
			w.pass()
			jobs := w.jobs()
			if len(jobs) != 1 {
				t.Fatalf("%d Jobs", len(jobs))
			}
			fetched := slices.ContainsFunc(jobs[0].Spec.Template.Spec.InitContainers,
				func(c corev1.Container) bool { return c.Name == "fetch-headers" })
			if fetched == mounted {
				t.Errorf("a step fetches the headers: %t", fetched)
			}
			w.quiet()
		})
	}
}
