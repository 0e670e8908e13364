// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/operator/controller/claims"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// spoke are the cases about what a cluster tells its hub.
var spoke = map[string]func(*testing.T){"79_kernels_in_a_claim": kernelsInAClaim}

// kernelsInAClaim: the claim of upstream's name has the kernels of all nodes, each once, sorted,
// one to a line.
func kernelsInAClaim(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	definition := filepath.Join(strings.TrimSpace(string(dir)),
		"cluster/v1alpha1/0000_02_clusters.open-cluster-management.io_clusterclaims.crd.yaml")
	if _, err := shared.Kubectl(t.Context(), "apply", "--server-side", "-f", definition); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=60s", "-f", definition); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), clusterv1alpha1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(shared.AdminConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	// Other cases have nodes boot other kernels meanwhile.
	last := errors.New("was not asked")
	err = wait.PollUntilContextTimeout(t.Context(), pace, patience, true, func(ctx context.Context) (bool, error) {
		if _, last = claims.New(c, c, fleet.Namespace).Reconcile(ctx, reconcile.Request{}); last != nil {
			return false, nil
		}
		var nodes corev1.NodeList
		claim := &clusterv1alpha1.ClusterClaim{}
		if last = c.List(ctx, &nodes); last != nil {
			return false, nil
		}
		if last = c.Get(ctx, client.ObjectKey{Name: "kernel-versions.kmm.node.kubernetes.io"}, claim); last != nil {
			return false, nil
		}
		var kernels []string
		for i := range nodes.Items {
			kernels = append(kernels, nodes.Items[i].Status.NodeInfo.KernelVersion)
		}
		slices.Sort(kernels)
		if want := strings.Join(slices.Compact(kernels), "\n"); claim.Spec.Value != want {
			last = fmt.Errorf("the claim is %q instead of %q", claim.Spec.Value, want)
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}
