// SPDX-License-Identifier: Apache-2.0

// Package lifecycle does with the Helm chart what docs/guide/install.md says: install, upgrade,
// uninstall.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/drover-project/drover/test/docs/page"
)

const (
	// Chart is the chart's folder.
	Chart = "charts/drover"
	// Test is the name that the commands have on the page.
	Test = "TestInstallUpgradeUninstall"
	// Column is a printer column of today's definitions.
	Column = "Loaded"
	// OlderColumn is what it was in the older chart.
	OlderColumn = "Filled"

	guide       = "docs/guide/install.md"
	definitions = "templates/generated/cluster-crds.yaml"
)

// Commands are the page's.
type Commands struct{ Install, Upgrade, Uninstall string }

// Read finds the commands in the repository.
func Read(root string) (Commands, error) {
	content, err := os.ReadFile(filepath.Join(root, guide))
	if err != nil {
		return Commands{}, fmt.Errorf("read the page: %w", err)
	}
	var found []string
	for _, b := range page.Parse(guide, string(content)).Blocks {
		if b.Attributes["test"] == Test {
			found = append(found, b.Text)
		}
	}
	if len(found) != 3 {
		return Commands{}, fmt.Errorf("%s has %d blocks of this test, want install, upgrade, uninstall", guide, len(found))
	}
	return Commands{found[0], found[1], found[2]}, nil
}

// Older writes a chart into dir, where the commands find it. No version of Drover has been
// released, so it is today's, of another version, whose images have that tag, and whose definitions
// have other printer columns.
func Older(root, dir, version string) error {
	if err := os.CopyFS(filepath.Join(dir, Chart), os.DirFS(filepath.Join(root, Chart))); err != nil {
		return fmt.Errorf("copy the chart: %w", err)
	}
	return errors.Join(
		replace(filepath.Join(dir, Chart, definitions), "name: "+Column+"\n", "name: "+OlderColumn+"\n"),
		replace(filepath.Join(dir, Chart, "Chart.yaml"), "\nversion: 0.0.0-dev\n", "\nversion: "+version+"\n"),
		replace(filepath.Join(dir, Chart, "Chart.yaml"), "\nappVersion: dev\n", "\nappVersion: "+version+"\n"),
	)
}

func replace(path, from, to string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("make the chart older: %w", err)
	}
	if !strings.Contains(string(content), from) {
		return fmt.Errorf("make the chart older: %s has no %q", path, from)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), from, to)), 0o600); err != nil {
		return fmt.Errorf("make the chart older: %w", err)
	}
	return nil
}

// Shell runs commands as an administrator does.
type Shell struct {
	// Root is the repository, whose bin has helm. Home is a folder for what helm keeps.
	Root, Home, Kubeconfig string
}

// Run runs commands in a folder, and returns what they said.
func (s Shell) Run(ctx context.Context, dir, commands string) (string, error) {
	bin, err := filepath.Abs(filepath.Join(s.Root, "bin"))
	if err != nil {
		return "", fmt.Errorf("find helm: %w", err)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"),
		"HELM_DATA_HOME="+filepath.Join(s.Home, "data"),
		"HELM_CONFIG_HOME="+filepath.Join(s.Home, "config"), "HELM_CACHE_HOME="+filepath.Join(s.Home, "cache"))
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("%s: %w: %s", commands, err, said)
	}
	return string(said), nil
}
