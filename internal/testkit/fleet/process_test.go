// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fleet

import (
	"path/filepath"
	"testing"
)

// TestPeakMiBIsTheChildsOwn: a small child of a large process took little.
func TestPeakMiBIsTheChildsOwn(t *testing.T) {
	const mib = 1 << 20
	large := make([]byte, 256*mib)
	for i := 0; i < len(large); i += 4096 {
		large[i] = 1
	}

	p, err := StartProcess("/bin/sleep", filepath.Join(t.TempDir(), "log"), []string{"60"})
	if err != nil {
		t.Fatal(err)
	}
	peak, err := p.PeakMiB()
	if err != nil {
		t.Fatal(err)
	}
	if peak <= 0 || peak > 64 {
		t.Errorf("a program that sleeps took %.1f MiB, this process 256", peak)
	}
	if large[0] != 1 { // it was needed until here
		t.Error(large[0])
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
