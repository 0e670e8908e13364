// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"fmt"
	"testing"
	"time"
)

// TestANodeThatNamesOneKernelAfterAnother starts no build for each of them.
func TestANodeThatNamesOneKernelAfterAnother(t *testing.T) {
	start := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	of := func(i int) platform { return platform{kernel: fmt.Sprintf("6.1.%d", i), arch: "amd64"} }
	k := &kernels{}
	builds := map[platform]bool{}
	for i := range 3600 {
		if ok, _ := k.allow("bad", of(i), start.Add(time.Duration(i)*time.Second)); ok {
			builds[of(i)] = true
		}
	}
	if len(builds) != maxKernels {
		t.Errorf("%d builds within an hour, want %d", len(builds), maxKernels)
	}
	now := start.Add(59 * time.Minute)
	if ok, again := k.allow("bad", of(9999), now); ok || again != time.Minute {
		t.Errorf("allowed %v, or after %v", ok, again)
	}
	if ok, _ := k.allow("bad", of(0), now); !ok {
		t.Error("what is made already is not taken back")
	}
	if ok, _ := k.allow("good", of(9999), now); !ok {
		t.Error("another node is kept out for it")
	}
	k.keep(map[string]bool{"bad": true}, now)
	if ok, _ := k.allow("bad", of(9999), now); ok {
		t.Error("it is forgotten too early")
	}
	if ok, _ := k.allow("bad", of(9999), start.Add(kernelsWindow)); !ok {
		t.Error("an hour later it is allowed one more")
	}
	k.keep(nil, start.Add(3*kernelsWindow))
	if len(k.nodes) != 0 {
		t.Errorf("%d nodes that are gone are remembered", len(k.nodes))
	}
}
