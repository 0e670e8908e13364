// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoFakeIsInAProduct: what pretends to be a node, a kernel or a cluster is linked into no program that runs in one, the privileged one least of all.
func TestNoFakeIsInAProduct(t *testing.T) {
	const module = "github.com/drover-project/drover/"
	for _, program := range []string{"drover", "drover-agent", "drover-kcall", "drover-operator", "drover-signer"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/"+program)
		list.Dir = root
		out, err := list.Output()
		if err != nil || !strings.Contains(string(out), module+"cmd/"+program+"\n") {
			t.Fatalf("%s: %v", program, err)
		}
		for pkg := range strings.Lines(string(out)) {
			path := strings.TrimSpace(pkg)
			own, ours := strings.CutPrefix(path, module)
			for _, fake := range []string{"internal/agent/hollow", "internal/agent/host/fake", "internal/kmod/synth", "internal/testkit", "kit/kittest", "test/"} {
				if ours && strings.HasPrefix(own, fake) {
					t.Errorf("%s links %s", program, own)
				}
			}
		}
	}
}
