// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestNodesRunOn from process to process where their kernels are kept. One whose process dies, or
// that is not kept, boots.
func TestNodesRunOn(t *testing.T) {
	dir := t.TempDir()
	begin := func(keep bool) (n *node, boot string) {
		t.Helper()
		o := Options{Prefix: "n", Kernels: []string{"6.1.0"}, Dir: dir, KeepKernels: keep, Clock: clock.RealClock{}}
		n, err := newNode(nil, &rest.Config{}, o, 0)
		if err == nil {
			boot, err = n.kernel.BootID()
		}
		if err != nil {
			t.Fatal(err)
		}
		return n, boot
	}
	n, first := begin(true)
	if err := n.kernel.Insmod(synth.Module{Name: "m", BuildID: "0a", Vermagic: "6.1.0 SMP"}.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := n.keep(); err != nil {
		t.Fatal(err)
	}
	n, boot := begin(true)
	if boot != first || n.kernel.Live()["m"] != "0a" {
		t.Errorf("boot %s, then %s with %v", first, boot, n.kernel.Live())
	}
	if n, boot = begin(true); boot == first || len(n.kernel.Live()) > 0 {
		t.Errorf("after a process that died: boot %s with %v", boot, n.kernel.Live())
	}
	if err := n.keep(); err != nil {
		t.Fatal(err)
	}
	if _, again := begin(false); again == boot {
		t.Error("a kernel that is not to be kept runs on")
	}
}
