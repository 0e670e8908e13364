// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"testing"
	"time"
)

// TestANodeThatNamesOneKernelAfterAnother starts no build for each of them.
func TestANodeThatNamesOneKernelAfterAnother(t *testing.T) {
	start := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	const most = 4
	type platform struct{ kernel, arch string }
	of := func(i int) platform { return platform{kernel: fmt.Sprintf("6.1.%d", i), arch: "amd64"} }
	k := NewNewcomers[platform](most)
	builds := map[platform]bool{}
	for i := range 3600 {
		if ok, _ := k.Allow("bad", of(i), start.Add(time.Duration(i)*time.Second)); ok {
			builds[of(i)] = true
		}
	}
	if len(builds) != most {
		t.Errorf("%d builds within an hour, want %d", len(builds), most)
	}
	now := start.Add(59 * time.Minute)
	if ok, again := k.Allow("bad", of(9999), now); ok || again != time.Minute {
		t.Errorf("allowed %v, or after %v", ok, again)
	}
	if ok, _ := k.Allow("bad", of(0), now); !ok {
		t.Error("what is made already is not taken back")
	}
	if ok, _ := k.Allow("good", of(9999), now); !ok {
		t.Error("another node is kept out for it")
	}
	k.Keep(map[string]bool{"bad": true}, now)
	if ok, _ := k.Allow("bad", of(9999), now); ok {
		t.Error("it is forgotten too early")
	}
	if ok, _ := k.Allow("bad", of(9999), start.Add(newcomersWindow)); !ok {
		t.Error("an hour later it is allowed one more")
	}
	k.Keep(nil, start.Add(3*newcomersWindow))
	if len(k.known) != 0 {
		t.Errorf("%d nodes that are gone are remembered", len(k.known))
	}
}
