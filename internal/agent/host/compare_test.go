// SPDX-License-Identifier: Apache-2.0

//go:build compare && linux

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestModprobeReadsTheSame: kmod's modprobe takes the same parameters from each command line.
func TestModprobeReadsTheSame(t *testing.T) {
	for name, tc := range cmdlines {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			line := filepath.Join(dir, "cmdline")
			if err := os.WriteFile(line, []byte(tc.given), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "modprobe.d"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "--mount", "sh", "-ec",
				`mount --bind "$0/cmdline" /proc/cmdline; exec modprobe -C "$0/modprobe.d" --showconfig`, dir)
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			for module, want := range map[string][]string{"nic": tc.nic, "snd_card": tc.card} {
				var got []string
				for line := range strings.Lines(string(output)) {
					if option, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "options "+module+" "); ok {
						got = append(got, option)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("modprobe takes %q for %s, and we %q", got, module, want)
				}
			}
		})
	}
}
