// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"

	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
)

// NeedsDRA skips a test where the API server is of a release that does not serve what DRA drivers
// need (variable KUBERNETES). What Drover says there has tests of its own: TestClusterWithoutDRA,
// and the cases of test/conformance.
func (e *Env) NeedsDRA(t testing.TB) {
	t.Helper()
	served, err := kube.ServesDRA(e.Admin(t).RESTMapper())
	if err != nil {
		t.Fatal(err)
	}
	if !served {
		t.Skip("this release of Kubernetes does not serve resource.k8s.io/v1")
	}
}

// NeedsImageVolumes skips a test where kubelets of the API server's release mount no images unless
// told to. What Drover does there has tests of its own: TestNodesDecideHowABuildReadsImages, and
// `GROUP=versions make e2e-kernel`.
func (e *Env) NeedsImageVolumes(t testing.TB) {
	t.Helper()
	node := &corev1.NodeSystemInfo{KubeletVersion: e.KubeletVersion(t), ContainerRuntimeVersion: "containerd://2.1.4"}
	if delivery.ModeAuto.For(node) != delivery.ModeImageVolume {
		t.Skip("kubelets of this release mount no images")
	}
}

// KubeletVersion is that of the API server's release, "v1.36.3": no node's kubelet is newer than
// its API server.
func (e *Env) KubeletVersion(t testing.TB) string {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(e.admin)
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	return found.GitVersion
}
