// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/gobuild"
	"github.com/drover-project/drover/internal/testkit/source"
)

// Release is a version of Drover: the folder of its sources, whose config/ is installed, and the
// folder with its drover-operator and drover-hollow.
type Release struct{ Root, Bin string }

func (r Release) binary(name string) string { return filepath.Join(r.Bin, name) }

// Ours is the version of these sources.
func (f *Fleet) Ours() Release { return f.ours }

// Apply installs a version's definitions, roles and policies over what is there, before an upgrade
// or after a downgrade. Policies that this version does not have stay, as with `kubectl apply`.
func (f *Fleet) Apply(ctx context.Context, r Release) error {
	f.installed = r
	return f.apply(ctx)
}

// ReplaceOperator ends the operator and starts that of a version.
func (f *Fleet) ReplaceOperator(ctx context.Context, r Release) error {
	if err := f.StopOperator(); err != nil {
		return err
	}
	f.operated = r
	if err := f.StartOperator(ctx); err != nil {
		return err
	}
	return f.WaitOperator(ctx)
}

// ReplaceAgents ends the hollow nodes' process and starts that of a version. With --keep-kernels
// among HollowArgs, only the agents are replaced: the nodes run on.
func (f *Fleet) ReplaceAgents(ctx context.Context, r Release) error {
	p := f.Hollow
	f.Hollow = nil
	if err := p.Stop(); err != nil {
		return err
	}
	f.hollow = r
	return f.StartHollow(ctx)
}

// ServeImages makes the images exist that match a regular expression, and no others, also for the
// next process of the hollow nodes.
func (f *Fleet) ServeImages(ctx context.Context, pattern string) error {
	f.o.ImagePattern = pattern
	return f.Debug(ctx, "/images?pattern="+url.QueryEscape(pattern))
}

// Build makes every binary that a fleet needs and returns their folder. It is quick when they are
// there.
func Build(ctx context.Context, say func(format string, args ...any)) (string, error) {
	tree, err := source.Find(ctx)
	if err != nil {
		return "", err
	}
	if _, err := devcluster.Assets(ctx); err != nil {
		return "", err
	}
	err = gobuild.Build{
		Name: "operator and hollow nodes", Dir: tree.Root, Output: tree.Bin + "/",
		Packages: []string{"./cmd/drover-operator", "./cmd/drover-hollow"}, Say: say,
	}.Run(ctx)
	if err != nil {
		return "", err
	}
	return tree.Bin, nil
}

// BuildProgram builds a package that is named as in the folder dir, with the flags of a plain `go
// build`: most of it is in the build cache then.
func BuildProgram(ctx context.Context, dir, pkg, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", output, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
