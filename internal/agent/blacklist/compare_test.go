// SPDX-License-Identifier: Apache-2.0

//go:build compare

package blacklist

import (
	"os/exec"
	"strings"
	"testing"
)

// TestModprobeHeedsIt: an alias leads to nothing, and the name to the module still.
func TestModprobeHeedsIt(t *testing.T) {
	dir := t.TempDir()
	if err := New(dir).Put("team/nic", []string{"stock"}); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("modprobe", "-C", dir, "--showconfig").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "blacklist stock\n") {
		t.Errorf("error %v, configuration %s", err, output)
	}
}
