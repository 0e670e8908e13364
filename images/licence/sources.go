// SPDX-License-Identifier: Apache-2.0

package licence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// Sources are where the modules' sources lie from which a repository's programs are compiled.
type Sources struct {
	repository string
	cache      string
	vendored   bool
}

// FindSources asks Go where a repository's modules are: in vendor/ if it has one, else in the
// module cache. Nothing is fetched.
func FindSources(ctx context.Context, repository string) (Sources, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOMODCACHE")
	command.Dir = repository
	said, err := command.Output()
	if err != nil {
		return Sources{}, fmt.Errorf("ask where Go's module cache is: %w", err)
	}
	found := Sources{repository: repository, cache: strings.TrimSpace(string(said))}
	switch _, err := os.Stat(filepath.Join(repository, "vendor", "modules.txt")); {
	case err == nil:
		found.vendored = true
	case !errors.Is(err, fs.ErrNotExist):
		return Sources{}, fmt.Errorf("look for vendor: %w", err)
	}
	return found, nil
}

// Own is the licence of the repository itself.
func (s Sources) Own() (string, error) {
	id, err := Of(s.repository)
	if err != nil {
		return "", fmt.Errorf("licence of %s: %w", filepath.Base(s.repository), err)
	}
	return id, nil
}

// Module is the licence of a module, by its path and version as go.mod names them.
func (s Sources) Module(path, version string) (string, error) {
	dir, err := s.dir(path, version)
	if err != nil {
		return "", fmt.Errorf("sources of %s %s: %w", path, version, err)
	}
	id, err := Of(dir)
	if err != nil {
		return "", fmt.Errorf("licence of %s %s: %w", path, version, err)
	}
	return id, nil
}

func (s Sources) dir(path, version string) (string, error) {
	if s.vendored {
		return filepath.Join(s.repository, "vendor", filepath.FromSlash(path)), nil
	}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return "", err
	}
	at, err := module.EscapeVersion(version)
	if err != nil {
		return "", err
	}
	return filepath.Join(s.cache, filepath.FromSlash(escaped)+"@"+at), nil
}
