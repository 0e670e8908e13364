// SPDX-License-Identifier: Apache-2.0

// Package source finds Drover's own sources on this machine: tests build the programs that they
// run. They are in the checkout that the working directory belongs to, or wherever the module of
// the working directory gets Drover from: a replaced folder, or Go's module cache.
package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// Module is Drover's path.
	Module = "github.com/drover-project/drover"
	// control is the embedded control plane's folder. It is a Go module of its own, so the module
	// cache has it apart.
	control = "tools/devcluster"
)

// Tree is where things are; all paths are absolute.
type Tree struct {
	// Root is the folder of Drover's module. It may be read-only.
	Root string
	// Devcluster is the folder of the embedded control plane's module.
	Devcluster string
	// Bin is where built programs are kept. It may not be there yet.
	Bin string
}

// Find looks from the working directory.
func Find(ctx context.Context) (Tree, error) {
	start, err := os.Getwd()
	if err != nil {
		return Tree{}, fmt.Errorf("find Drover's sources: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		tree, found, err := checkout(dir)
		if found || err != nil {
			return tree, err
		}
		if dir == filepath.Dir(dir) {
			return required(ctx, start)
		}
	}
}

// checkout is a tree with everything in its place.
func checkout(root string) (Tree, bool, error) {
	tree := Tree{Root: root, Devcluster: filepath.Join(root, control), Bin: filepath.Join(root, "bin")}
	_, err := os.Stat(filepath.Join(tree.Devcluster, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return Tree{}, false, nil
	}
	if err != nil {
		return Tree{}, false, fmt.Errorf("find Drover's sources: %w", err)
	}
	return tree, true, nil
}

// required is the tree that another module requires.
func required(ctx context.Context, dir string) (Tree, error) {
	var drover struct{ Dir, Version string }
	if err := ask(ctx, dir, &drover, "list", "-mod=readonly", "-m", "-json", Module); err != nil {
		return Tree{}, err
	}
	if drover.Dir == "" {
		return Tree{}, fmt.Errorf("find Drover's sources: the module in %s does not have them; run `go mod download %s`", dir, Module)
	}
	tree, found, err := checkout(drover.Dir)
	if found || err != nil {
		return tree, err
	}
	var plane struct{ Dir string }
	if err := ask(ctx, dir, &plane, "mod", "download", "-json", Module+"/"+control+"@"+drover.Version); err != nil {
		return Tree{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Tree{}, fmt.Errorf("find a place for Drover's programs: %w", err)
	}
	return Tree{Root: drover.Dir, Devcluster: plane.Dir, Bin: filepath.Join(cache, "drover", drover.Version)}, nil
}

// ask reads what the go command answers.
func ask(ctx context.Context, dir string, answer any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("find Drover's sources: go %s in %s: %w\n%s%s", args[0], dir, err, stdout.Bytes(), stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), answer); err != nil {
		return fmt.Errorf("find Drover's sources: read what go %s says: %w", args[0], err)
	}
	return nil
}
