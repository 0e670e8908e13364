// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os/exec"
	"strings"
	"testing"
)

// TestListenersTakeNoMPTCP: SELinux labels the sockets that an MPTCP listener accepts as the
// kernel's own on some kernels (Debian 6.1) and resets them, and Go listens by MPTCP.
func TestListenersTakeNoMPTCP(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}} {{.DefaultGODEBUG}}{{end}}`,
		"./cmd/...", "./samples/...")
	list.Dir = "../.."
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for line := range strings.Lines(string(output)) {
		programs++
		if _, settings, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.Contains(settings, "multipathtcp=0") {
			t.Errorf("it listens by MPTCP: %s", line)
		}
	}
	if programs < 10 {
		t.Errorf("only %d programs are known", programs)
	}
}
