// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Want says what must be in the kernel.
type Want struct {
	// Modules to load, by name.
	Modules []string
	// LoadOrder is modprobe.modulesLoadingOrder, from the topmost module to the deepest. Each entry
	// depends on the next, even where the modules' files do not say so.
	LoadOrder []string
	// Live are modules in the kernel. They satisfy dependencies that are in neither tree.
	Live map[string]bool
}

// Origin says in which tree a module was found.
type Origin string

const (
	// Image is the kernel module image's tree.
	Image Origin = "Image"
	// Host is the node's own tree.
	Host Origin = "Host"
)

// Step is one module to load.
type Step struct {
	// Name of the module, normalised.
	Name string
	// From says which tree Path is relative to.
	From Origin
	// Path of the file.
	Path string
	// Info are the file's facts; shared, not to be changed.
	Info *Info
	// Optional: only soft dependencies lead to the module; what was asked for works without it.
	Optional bool
}

// MissingDependencyError says that a module needs another that is nowhere.
type MissingDependencyError struct{ Module, Needs string }

func (e *MissingDependencyError) Error() string {
	return fmt.Sprintf("module %s needs %s, which is neither in the image, nor on the host, nor built into the kernel", e.Module, e.Needs)
}

// NotFoundError says that a wanted module is nowhere.
type NotFoundError struct{ Module string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("module %s is neither in the image, nor on the host, nor built into the kernel", e.Module)
}

// CycleError says that modules depend on each other.
type CycleError struct {
	// Modules in the order in which each needs the next; the last needs the first.
	Modules []string
}

func (e *CycleError) Error() string {
	return "dependency cycle: " + strings.Join(append(slices.Clone(e.Modules), e.Modules[0]), " needs ")
}

// maxVisits bounds the work of optional dependencies that fail again and again.
const maxVisits = 20_000

var errTooManyVisits = errors.New("the dependencies are too entangled to resolve: check the soft dependencies of the modules in the image")

// Resolve returns the modules to load for want, in order, each once: a module's dependencies, its
// optional ones ("pre" soft dependencies), itself, its "post" soft dependencies. It leaves out
// built-in modules and optional dependencies that are missing or cannot be satisfied. Where both
// trees have a module, it takes the image's.
//
// Errors: *NotFoundError of a wanted module, *MissingDependencyError, *CycleError, read errors.
func Resolve(want Want, image, host *Tree) ([]Step, error) {
	r := &resolver{image: image, host: host}
	return r.resolve(want)
}

type visitState uint8

const (
	unvisited visitState = iota
	active               // its dependencies are being visited
	done
)

type resolver struct {
	image, host *Tree
	// lenient: a dependency that is in neither tree is no error.
	lenient bool
	order   map[string]string // LoadOrder: the module that each depends on
	live    map[string]bool

	state  map[string]visitState
	log    []string // modules whose state changed, for undoing
	chain  []string // active modules, outermost first
	steps  []Step
	visits int
	soft   int // above zero: within a soft dependency
}

func (r *resolver) resolve(want Want) ([]Step, error) {
	r.order, r.live, r.state = map[string]string{}, want.Live, map[string]visitState{}
	for i := 1; i < len(want.LoadOrder); i++ {
		r.order[NormalizeName(want.LoadOrder[i-1])] = NormalizeName(want.LoadOrder[i])
	}
	for _, module := range want.Modules {
		if err := r.visit(NormalizeName(module), ""); err != nil {
			return nil, err
		}
	}
	return r.steps, nil
}

// visit appends the steps for a module; by is the module that needs it, empty for a wanted one.
func (r *resolver) visit(name, by string) error {
	if r.visits++; r.visits > maxVisits {
		return errTooManyVisits
	}
	switch r.state[name] {
	case done:
		if r.soft == 0 {
			r.require(name)
		}
		return nil
	case active:
		return &CycleError{Modules: slices.Clone(r.chain[slices.Index(r.chain, name):])}
	}
	if r.builtin(name, by) {
		return nil
	}
	step, err := r.find(name, by)
	if err != nil || step == nil {
		return err
	}
	r.state[name], r.chain, r.log = active, append(r.chain, name), append(r.log, name)
	needs := step.Info.Depends
	if next, ok := r.order[name]; ok {
		needs = append(slices.Clone(needs), next)
	}
	for _, need := range needs {
		if err := r.visit(need, name); err != nil {
			return err
		}
	}
	if err := r.optional(step.Info.SoftdepPre, name); err != nil {
		return err
	}
	step.Optional = r.soft > 0
	r.state[name], r.chain, r.steps = done, r.chain[:len(r.chain)-1], append(r.steps, *step)
	return r.optional(step.Info.SoftdepPost, name)
}

// builtin reports whether the kernel has the module compiled in. Only the node knows. Without a
// node, an image's index, which is of the kernel that the image was built with, counts for
// dependencies whose files the image lacks.
func (r *resolver) builtin(name, by string) bool {
	if r.host != nil || by == "" {
		return r.host.Builtin(name)
	}
	_, inImage := r.image.Path(name)
	return !inImage && r.image.Builtin(name)
}

// require makes an optional module, and all that it needs, a required one.
func (r *resolver) require(name string) {
	for i := range r.steps {
		if s := &r.steps[i]; s.Name == name && s.Optional {
			s.Optional = false
			for _, need := range s.Info.Depends {
				r.require(need)
			}
		}
	}
}

// find returns a module's step, from the image or else the host; nil when it may be missing.
func (r *resolver) find(name, by string) (*Step, error) {
	step := &Step{Name: name, From: Image}
	tree := r.image
	path, ok := tree.Path(name)
	if !ok {
		tree, step.From = r.host, Host
		path, ok = tree.Path(name)
	}
	switch {
	case !ok && by == "":
		return nil, &NotFoundError{Module: name}
	case !ok && (r.lenient || r.live[name]):
		return nil, nil
	case !ok:
		return nil, &MissingDependencyError{Module: by, Needs: name}
	}
	var err error
	step.Path = path
	step.Info, err = tree.Info(name)
	return step, err
}

// optional visits soft dependencies. One that cannot be satisfied leaves nothing behind.
func (r *resolver) optional(names []string, by string) error {
	r.soft++
	defer func() { r.soft-- }()
	for _, name := range names {
		for _, module := range r.lookup(name) {
			if r.state[module] != unvisited {
				continue // loaded, or it waits for us: then it cannot come first
			}
			steps, chain, log := len(r.steps), len(r.chain), len(r.log)
			err := r.visit(module, by)
			if errors.Is(err, errTooManyVisits) {
				return err
			}
			if err != nil {
				for _, changed := range r.log[log:] {
					delete(r.state, changed)
				}
				r.steps, r.chain, r.log = r.steps[:steps], r.chain[:chain], r.log[:log]
			}
		}
	}
	return nil
}

// lookup returns the modules that the name in a soft dependency stands for: the module of that
// name, or else those that have it as an alias. (A built-in name with aliases stands for these:
// crc32 is a library in the kernel and an algorithm in modules.)
func (r *resolver) lookup(name string) []string {
	_, inImage := r.image.Path(name)
	_, onHost := r.host.Path(name)
	if inImage || onHost {
		return []string{name}
	}
	if modules := r.image.alias(name); modules != nil {
		return modules
	}
	return r.host.alias(name)
}

// Files is the part of an image's tree that a node needs.
type Files struct {
	// Modules are the module files in load order, relative to the tree.
	Modules []string
	// Indexes are the tree's index files.
	Indexes []string
}

// Closure returns the files of an image's tree that loading want needs: the wanted modules, which
// must be there (*NotFoundError), what they depend on within the image, and the index files.
func Closure(want Want, image *Tree) (Files, error) {
	r := &resolver{image: image, lenient: true} // the host must have what the image lacks
	steps, err := r.resolve(want)
	if err != nil {
		return Files{}, err
	}
	files := Files{Indexes: image.Indexes()}
	for _, step := range steps {
		files.Modules = append(files.Modules, step.Path)
	}
	return files, nil
}
