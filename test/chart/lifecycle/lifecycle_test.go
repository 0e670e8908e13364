// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestCommandsAreThePages: each does what its name says, with helm.
func TestCommandsAreThePages(t *testing.T) {
	commands, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for verb, command := range map[string]string{"install": commands.Install, "upgrade": commands.Upgrade, "uninstall": commands.Uninstall} {
		if !strings.HasPrefix(command, "helm "+verb+" drover ") {
			t.Errorf("the command for %s is %q", verb, command)
		}
	}
}

// TestOlder: the chart differs in version, images' tag and definitions, and one that has nothing to
// differ in is refused.
func TestOlder(t *testing.T) {
	dir := t.TempDir()
	if err := Older(root, dir, "0.0.0-x"); err != nil {
		t.Fatal(err)
	}
	about, err := os.ReadFile(filepath.Join(dir, Chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crds, err := os.ReadFile(filepath.Join(dir, Chart, definitions))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(about), "\nversion: 0.0.0-x\nappVersion: 0.0.0-x\n") || strings.Contains(string(crds), "name: "+Column+"\n") ||
		!strings.Contains(string(crds), "name: "+OlderColumn+"\n") {
		t.Errorf("it is not older: %s", about)
	}
	if err := Older(dir, t.TempDir(), "0.0.0-y"); err == nil || !strings.Contains(err.Error(), `has no "name: Loaded`) {
		t.Errorf("an older chart is made older again: %v", err)
	}
}
