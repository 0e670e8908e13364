// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/check"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Make finds the modules to load for an order in the delivery's tree and the host's. What is
// outgoing cannot be counted on. The error wraps an *Error where nothing can be loaded.
func Make(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing []string) (*Plan, error) {
	if modprobe.Wanted(&c.Modprobe) {
		return makeModprobe(c, delivery, h, outgoing)
	}
	return makeOwn(c, delivery, h, outgoing)
}

// makeOwn plans a load by the agent itself.
func makeOwn(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing []string) (*Plan, error) {
	main := kmod.NormalizeName(c.Modprobe.ModuleName)
	builtIn, err := h.BuiltIn(main)
	if err != nil {
		return nil, err
	}
	if builtIn {
		return &Plan{Main: main, BuiltIn: true}, nil
	}
	t, err := indexTrees(delivery, h, kmod.NewIndexedTree, outgoing)
	if err != nil {
		return nil, err
	}
	want := kmod.Want{Modules: []string{main}, LoadOrder: c.Modprobe.ModulesLoadingOrder, Live: t.live}
	steps, err := kmod.Resolve(want, t.image, t.host)
	if err != nil { // the host's index may be older than its modules
		if t.hostFS, t.host, err = WalkedHostTree(h); err != nil {
			return nil, err
		}
		steps, err = kmod.Resolve(want, t.image, t.host)
	}
	if err != nil {
		return nil, unresolved(err)
	}
	p := &Plan{Main: main}
	if p.Firmware, err = firmwareOf(c, delivery); err != nil {
		return nil, err
	}
	if p.Steps, err = t.steps(steps, main); err != nil {
		return nil, err
	}
	p.BuiltIn = len(p.Steps) == 0 // modules.builtin of the host's tree names it
	p.Hopeless, err = hopeless(h, t.host, steps)
	return p, err
}

// OfHost are a module of the host's own tree and what it needs, in load order.
func OfHost(h host.Host, name string) ([]Step, error) {
	dir, tree, err := WalkedHostTree(h)
	if err != nil {
		return nil, err
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}}, nil, tree)
	if err != nil {
		return nil, err
	}
	var all []Step
	for _, s := range steps {
		all = append(all, stepOf(s, dir))
	}
	return all, nil
}

func firmwareOf(c v1beta1.ModuleConfig, delivery fs.FS) (fs.FS, error) {
	if c.Modprobe.FirmwarePath == "" {
		return nil, nil
	}
	files, err := fs.Sub(delivery, manifest.FirmwareDir)
	if err != nil {
		return nil, unreadable(err)
	}
	return files, nil
}

// trees are what plans are made from.
type trees struct {
	imageFS, hostFS fs.FS
	image, host     *kmod.Tree
	live            map[string]bool // modules that work, and stay
	release         string
}

func indexTrees(delivery fs.FS, h host.Host, index func(fs.FS) (*kmod.Tree, error), outgoing []string) (*trees, error) {
	t := &trees{release: h.Release()}
	var err error
	if t.imageFS, t.image, err = imageTree(delivery, t.release); err != nil {
		return nil, err
	}
	if t.hostFS, t.host, err = hostTree(h, index); err != nil {
		return nil, err
	}
	t.live, err = liveNames(h, outgoing)
	return t, err
}

// steps makes a plan's steps; ofImage is the module that the host's tree will not do for.
func (t *trees) steps(resolved []kmod.Step, ofImage string) ([]Step, error) {
	var steps []Step
	for _, s := range resolved {
		if s.Name == ofImage && s.From == kmod.Host {
			return nil, &Error{Reason: v1beta1.ReasonMissingDependency,
				Err: fmt.Errorf("module %s is not in the image for kernel %s", s.Name, t.release)}
		}
		step, err := t.step(s)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func stepOf(s kmod.Step, tree fs.FS) Step {
	return Step{
		Name: s.Name, BuildID: orders.Identity(s.Info.BuildID, s.Info.SrcVersion), Tree: tree, Path: s.Path,
		Optional: s.Optional, Needs: s.Info.Depends, InTree: s.Info.InTree,
	}
}

func (t *trees) step(s kmod.Step) (Step, error) {
	step := stepOf(s, t.imageFS)
	step.Params = s.Info.Params
	if s.From == kmod.Host {
		step.Tree, step.FromHost = t.hostFS, true
	}
	if inner := s.Info.Name; inner != "" && inner != s.Name { // the kernel goes by the name inside
		return step, unreadable(fmt.Errorf("%s holds the module %s, not %s", s.Path, inner, s.Name))
	}
	if step.BuildID == "" {
		var err error
		if step.Content, err = contentOf(step.Tree, step.Path); err != nil {
			return step, unreadable(err)
		}
	}
	return step, nil
}

// liveNames are the modules that the kernel holds, that work, and that stay.
func liveNames(h host.Host, outgoing []string) (map[string]bool, error) {
	present, err := h.Modules()
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for name, state := range present {
		live[name] = state == host.StateLive && !slices.Contains(outgoing, name)
	}
	return live, nil
}

func contentOf(tree fs.FS, path string) (string, error) {
	file, err := tree.Open(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = file.Close() }() // only read from
	sum, _, err := manifest.Sum(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return sum, nil
}

func unreadable(err error) *Error { return &Error{Reason: v1beta1.ReasonImageUnreadable, Err: err} }

func unresolved(err error) *Error {
	var missing *kmod.MissingDependencyError
	var notFound *kmod.NotFoundError
	switch {
	case errors.As(err, &missing):
		return &Error{Reason: v1beta1.ReasonMissingDependency, Err: err, Needs: missing.Needs}
	case errors.As(err, &notFound):
		return &Error{Reason: v1beta1.ReasonMissingDependency, Err: err}
	}
	return unreadable(err)
}

// makeModprobe plans for kmod's modprobe, as far as can be told beforehand what it will load: for
// the fuse, and to know what of it is the order's.
func makeModprobe(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing []string) (*Plan, error) {
	args := modprobe.LoadArgs(&c.Modprobe)
	var p *Plan
	var err error
	if modprobe.Raw(&c.Modprobe) {
		p, err = makeRaw(c, delivery, h, outgoing, modprobe.Parse(args).Modules)
	} else {
		p, err = makeOwn(c, delivery, h, outgoing)
	}
	if err != nil {
		return nil, err
	}
	if p.BuiltIn {
		return p, nil
	}
	if p.Firmware, err = firmwareOf(c, delivery); err != nil {
		return nil, err
	}
	if modprobe.Parse(args).Force { // what is certain otherwise is what the user wants to force
		p.Hopeless = nil
	}
	if p.image, _, err = imageTree(delivery, h.Release()); err != nil {
		return nil, err
	}
	p.Modprobe = args
	for i := range p.Steps {
		p.Steps[i].way = orderhash.Digest(args)
	}
	return p, nil
}

// makeRaw plans for a command line of the user's own: what the modules that it names need or, if
// they cannot be told, all of the image's, optional.
func makeRaw(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing, names []string) (*Plan, error) {
	t, err := indexTrees(delivery, h, kmod.NewHostTree, outgoing)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	steps, err := kmod.Resolve(kmod.Want{Modules: names, Live: t.live}, t.image, t.host)
	main := modprobe.Main(&c.Modprobe)
	switch {
	case err != nil || len(names) == 0:
		steps = t.all()
	case len(steps) == 0:
		return &Plan{Main: main, BuiltIn: true}, nil
	case slices.ContainsFunc(steps, func(s kmod.Step) bool { return s.Name == main }):
		p.Main = main
	}
	p.Steps, err = t.steps(steps, "")
	return p, err
}

// all are the image's modules with what they need, in load order, all optional.
func (t *trees) all() []kmod.Step {
	var all []kmod.Step
	for _, name := range t.image.Names() {
		steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}, Live: t.live}, t.image, t.host)
		if err != nil {
			continue // modprobe will find the same
		}
		for _, s := range steps {
			if !slices.ContainsFunc(all, func(t kmod.Step) bool { return t.Name == s.Name }) {
				s.Optional = true
				all = append(all, s)
			}
		}
	}
	return all
}

// ImageOnly is a plan of a command line of modprobe for the tree of the delivery, without steps.
func ImageOnly(delivery fs.FS, release string, args []string) (*Plan, error) {
	image, _, err := imageTree(delivery, release)
	if err != nil {
		return nil, err
	}
	return &Plan{Modprobe: args, image: image}, nil
}

// imageTree indexes the delivery's modules for the running kernel. Where images are built, upstream
// drops a "+" at the end of the release: both names are tried.
func imageTree(delivery fs.FS, release string) (fs.FS, *kmod.Tree, error) {
	for _, name := range []string{release, strings.TrimSuffix(release, "+")} {
		dir, err := fs.Sub(delivery, path.Join("lib/modules", name))
		if err != nil {
			return nil, nil, unreadable(err)
		}
		tree, err := kmod.NewTree(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, unreadable(err)
		}
		return dir, tree, nil
	}
	return nil, nil, unreadable(fmt.Errorf("the image has no directory lib/modules/%s", release))
}

// WalkedHostTree indexes the host's own modules by looking at every directory.
func WalkedHostTree(h host.Host) (fs.FS, *kmod.Tree, error) { return hostTree(h, kmod.NewHostTree) }

// hostTree indexes the host's own modules; a host without any is fine.
func hostTree(h host.Host, index func(fs.FS) (*kmod.Tree, error)) (fs.FS, *kmod.Tree, error) {
	dir, err := h.Tree()
	if err != nil {
		return nil, nil, err
	}
	tree, err := index(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the host's modules: %w", err)
	}
	return dir, tree, nil
}

// hopeless says why the kernel will certainly refuse a plan; nil when it may load.
func hopeless(h host.Host, tree *kmod.Tree, steps []kmod.Step) (*orders.Attempt, error) {
	rules, err := h.Rules()
	if err != nil {
		return nil, err
	}
	magic, err := vermagicOf(h, tree)
	if err != nil {
		return nil, err
	}
	var modules []check.Module
	for _, s := range steps {
		if !s.Optional {
			// What is certain shows in the facts; symbols and signatures are left to the kernel.
			modules = append(modules, check.Module{Name: s.Name, Details: &kmod.Details{Info: s.Info}})
		}
	}
	kernel := check.Kernel{Release: h.Release(), Machine: rules.Machine, Vermagic: magic, ModulesDisabled: rules.ModulesDisabled}
	for _, finding := range check.Check(kernel, modules) {
		if finding.Certain {
			return orders.Failed(finding.Reason, "%s", finding.Message), nil
		}
	}
	return nil, nil
}

// maxSamples bounds how many modules are looked at for the kernel's vermagic.
const maxSamples = 8

// vermagicOf is the vermagic of a live module of the host's tree, or "" when none is known.
func vermagicOf(h host.Host, tree *kmod.Tree) (string, error) {
	if tree == nil {
		return "", nil
	}
	present, err := h.Modules()
	if err != nil {
		return "", err
	}
	left := maxSamples
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if _, ok := tree.Path(name); !ok {
			continue
		}
		if left--; left < 0 {
			break
		}
		live, ok, err := h.Module(name)
		if err != nil {
			return "", err
		}
		info, err := tree.Info(name)
		if err != nil || !ok || info.BuildID == "" || info.BuildID != live.BuildID {
			continue // replaced on disk since, or unreadable: another one will do
		}
		return info.Vermagic, nil
	}
	return "", nil
}
