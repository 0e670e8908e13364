// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/internal/testkit/gobuild"
	"github.com/drover-project/drover/internal/testkit/source"
)

const (
	// shortID is how many digits of a commit's name are shown.
	shortID = 8
	// keeps is the file without which a version's fake kernels end with their process.
	keeps = "internal/agent/host/fake/keep.go"
)

// nodesSide are the packages that play nodes: kernels, kubelets, registries.
var nodesSide = []string{"internal/agent/hollow", "internal/agent/host/fake"}

// build makes the operator and the agents of an older version from its sources, and returns them
// with the version that they tell the API server. Where that version cannot keep kernels yet, its
// nodes are played by these sources: agent and operator are its own all the same.
func build(ctx context.Context, commit string, say func(string, ...any)) (older fleet.Release, id string, err error) {
	tree, err := source.Find(ctx)
	if err != nil {
		return older, "", err
	}
	full, err := git(ctx, tree.Root, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return older, "", fmt.Errorf("this clone does not have the commit BASE=%s: run `git fetch --unshallow origin`, or "+
			"`git fetch origin %s`, or name another: %w", commit, commit, err)
	}
	id = strings.TrimSpace(string(full))[:shortID]
	dir := filepath.Join(tree.Root, ".cache", "skew", id)
	older = fleet.Release{Root: filepath.Join(dir, "source"), Bin: filepath.Join(dir, "bin")}
	if err := errors.Join(os.RemoveAll(older.Root), os.MkdirAll(older.Root, 0o755), os.MkdirAll(older.Bin, 0o755)); err != nil {
		return older, id, fmt.Errorf("make a folder for the older version: %w", err)
	}
	if err := unpack(ctx, tree.Root, id, older.Root); err != nil {
		return older, id, err
	}
	if _, err := os.Stat(filepath.Join(older.Root, keeps)); errors.Is(err, fs.ErrNotExist) {
		say("%s cannot keep kernels: these sources play its nodes", id)
		if err := borrow(tree.Root, older.Root); err != nil {
			return older, id, err
		}
	}
	err = gobuild.Build{
		Name: "operator and agents of " + id, Dir: older.Root, Output: older.Bin + "/", Say: say,
		Flags:    []string{"-buildvcs=false", "-ldflags=-X " + source.Module + "/internal/shared/version.Version=" + id},
		Packages: []string{"./cmd/drover-operator", "./cmd/drover-hollow"},
	}.Run(ctx)
	if err == nil && id == version.Version {
		err = fmt.Errorf("both versions call themselves %q", id)
	}
	return older, id, err
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}

// unpack writes a commit's files.
func unpack(ctx context.Context, root, commit, dir string) error {
	archive, err := git(ctx, root, "archive", "--format=tar", commit)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", commit, err, out)
	}
	return nil
}

// borrow replaces what plays nodes.
func borrow(from, to string) error {
	for _, dir := range nodesSide {
		target := filepath.Join(to, dir)
		if err := errors.Join(os.RemoveAll(target), os.CopyFS(target, os.DirFS(filepath.Join(from, dir)))); err != nil {
			return fmt.Errorf("borrow %s: %w", dir, err)
		}
	}
	return nil
}
