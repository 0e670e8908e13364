// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// aptConfig makes apt look at another architecture, or other sources, in folders of its own: the
// machine's package lists stay as they are.
const aptConfig = `APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
`

// ModulesOf unpacks Debian's 6.1 kernel for any of Debian's architectures, for example "arm64", and
// indexes its modules. Nothing of it runs here. It returns the folder that lib/modules is in, and
// the kernel's release.
func (c *Cache) ModulesOf(ctx context.Context, architecture string) (root, release string, err error) {
	meta := "linux-image-" + architecture
	root, err = c.Entry(ctx, "modules-"+architecture, []string{"1", meta}, func(ctx context.Context, dir string) error {
		return fetchModules(ctx, dir, architecture, meta)
	})
	if err != nil {
		return "", "", err
	}
	releases, err := os.ReadDir(filepath.Join(root, "lib", "modules"))
	if err != nil {
		return "", "", fmt.Errorf("find the kernel's release: %w", err)
	}
	if len(releases) != 1 {
		return "", "", fmt.Errorf("%d kernels in %s instead of one", len(releases), root)
	}
	return root, releases[0].Name(), nil
}

func fetchModules(ctx context.Context, dir, architecture, meta string) error {
	apt, err := os.MkdirTemp(filepath.Dir(dir), "apt-")
	if err != nil {
		return fmt.Errorf("make folders for apt: %w", err)
	}
	defer func() { _ = os.RemoveAll(apt) }()
	p, err := newPackages(apt, architecture, "")
	if err != nil {
		return err
	}
	if err := p.update(ctx); err != nil {
		return err
	}
	names, err := p.dependencies(ctx, meta)
	if err != nil {
		return err
	}
	if err := p.unpack(ctx, dir, names[0]); err != nil {
		return err
	}
	releases, err := os.ReadDir(filepath.Join(dir, "lib", "modules"))
	if err != nil || len(releases) != 1 {
		return errors.Join(fmt.Errorf("%s holds not one kernel", names[0]), err)
	}
	if _, err := (command{name: "depmod", args: []string{"-b", dir, releases[0].Name()}}).run(ctx); err != nil {
		return fmt.Errorf("index the modules: %w", err)
	}
	return nil
}

// newPackages are the package lists of an architecture, kept below dir. Without sources of their
// own, they are of the machine's.
func newPackages(dir, architecture, sources string) (packages, error) {
	for _, folder := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return packages{}, fmt.Errorf("make folders for apt: %w", err)
		}
	}
	files := map[string]string{"status": "", "apt.conf": fmt.Sprintf(aptConfig, dir, architecture)}
	if sources != "" {
		files["sources.list"] = sources
		files["apt.conf"] += fmt.Sprintf("Dir::Etc::sourcelist \"%s\";\nDir::Etc::sourceparts \"/dev/null\";\n",
			filepath.Join(dir, "sources.list"))
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return packages{}, fmt.Errorf("set apt up: %w", err)
		}
	}
	return packages{env: []string{"APT_CONFIG=" + filepath.Join(dir, "apt.conf")}}, nil
}
