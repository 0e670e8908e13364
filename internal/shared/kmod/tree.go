// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// Bounds of a lib/modules/<kernel>. Distributions ship about 5,000 modules, 2 MiB of index.
const (
	maxTreeFiles = 100_000
	maxIndexSize = 64 << 20
)

// Tree is an index of one lib/modules/<kernel> directory: which module is in which file. Making it
// opens no module; facts about a module are read when asked for, and kept. A nil *Tree is an empty
// one. It is safe for concurrent use.
type Tree struct {
	fsys    fs.FS
	files   map[string]string // normalised name → path
	builtin map[string]bool
	indexes []string

	mu      sync.Mutex
	infos   map[string]readResult
	aliases map[string][]string // nil until needed
}

type readResult struct {
	info *Info
	err  error
}

// NewTree indexes the directory that fsys is rooted at (fs.Sub, os.Root.FS), and follows no
// symbolic link that fsys shows as one. A link whose Info is an error, as package imagefs has those
// that lead nowhere, is that error: a module that is not seen would be taken from the host. When
// several files hold one name, depmod's search order decides as distributions configure it:
// updates, extra, everything else, weak-updates; within one of these the lexically first path. A
// directory that does not exist is an error that wraps fs.ErrNotExist.
func NewTree(fsys fs.FS) (*Tree, error) { return walk(fsys, false) }

// NewHostTree is NewTree for a node's own directory. As depmod, it follows links to modules: those
// in RHEL's weak-updates and extra lead to modules that were built for another kernel and fit this
// one.
func NewHostTree(fsys fs.FS) (*Tree, error) { return walk(fsys, true) }

func walk(fsys fs.FS, links bool) (*Tree, error) {
	t := &Tree{fsys: fsys, files: map[string]string{}, builtin: map[string]bool{}, infos: map[string]readResult{}}
	seen := 0
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > maxTreeFiles {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxTreeFiles)
		}
		switch {
		case entry.IsDir() && (file == "build" || file == "source"):
			return fs.SkipDir // kernel headers and sources; depmod leaves them out as well
		case entry.Type().IsRegular(), links && leadsToModule(fsys, file, entry):
			t.add(file)
		case entry.Type()&fs.ModeSymlink != 0 && !links:
			_, err := entry.Info()
			return err //nolint:wrapcheck // it is wrapped below
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	return t, t.readBuiltin()
}

func leadsToModule(fsys fs.FS, file string, entry fs.DirEntry) bool {
	if _, ok := ModuleName(file); !ok || entry.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := fs.Stat(fsys, file)
	return err == nil && info.Mode().IsRegular()
}

// NewIndexedTree is NewHostTree with the files of depmod's modules.dep, since walking takes longer
// than all else at a boot. As modprobe, it does not find a module that was added after depmod ran.
// Without modules.dep it is NewHostTree.
func NewIndexedTree(fsys fs.FS) (*Tree, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	t := &Tree{fsys: fsys, files: map[string]string{}, builtin: map[string]bool{}, infos: map[string]readResult{}}
	for _, entry := range entries {
		if entry.Type().IsRegular() && isIndex(entry.Name()) {
			t.indexes = append(t.indexes, entry.Name())
		}
	}
	content, err := t.index("modules.dep")
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		return NewHostTree(fsys)
	}
	for line := range strings.Lines(string(content)) {
		if file, _, ok := strings.Cut(line, ":"); ok && fs.ValidPath(file) {
			t.add(file)
		}
	}
	return t, t.readBuiltin()
}

func (t *Tree) add(file string) {
	if name, ok := ModuleName(file); ok {
		if old, taken := t.files[name]; !taken || rank(file) < rank(old) {
			t.files[name] = file
		}
		return
	}
	if isIndex(file) {
		t.indexes = append(t.indexes, file)
	}
}

// ModuleName returns the normalised name of the module in a file, or false when the file's name is
// not a module's (.ko, .ko.gz, .ko.xz, .ko.zst).
func ModuleName(file string) (string, bool) {
	base := path.Base(file)
	for _, suffix := range [...]string{".gz", ".xz", ".zst"} {
		if cut, ok := strings.CutSuffix(base, suffix); ok {
			base = cut
			break
		}
	}
	name, ok := strings.CutSuffix(base, ".ko")
	return NormalizeName(name), ok && name != ""
}

// rank orders the first directory of a path as depmod searches; lower wins.
func rank(file string) int {
	top, _, _ := strings.Cut(file, "/")
	switch top {
	case "updates":
		return 0
	case "extra":
		return 1
	case "weak-updates":
		return 3
	}
	return 2
}

// isIndex recognises index files of depmod and of the kernel's build, also .bin and .modinfo.
func isIndex(file string) bool {
	rest, ok := strings.CutPrefix(file, "modules.")
	if !ok || strings.Contains(file, "/") {
		return false
	}
	kind, _, _ := strings.Cut(rest, ".")
	switch kind {
	case "dep", "softdep", "weakdep", "alias", "symbols", "builtin", "order", "devname":
		return true
	}
	return false
}

func (t *Tree) readBuiltin() error {
	content, err := t.index("modules.builtin")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if name, ok := ModuleName(strings.TrimSpace(line)); ok {
			t.builtin[name] = true
		}
	}
	return nil
}

// index reads one index file; one that is not there is empty.
func (t *Tree) index(name string) ([]byte, error) {
	if !slices.Contains(t.indexes, name) {
		return nil, nil
	}
	return readBounded(t.fsys, name, maxIndexSize)
}

// Path returns the file of a module, relative to the tree.
func (t *Tree) Path(module string) (string, bool) {
	if t == nil {
		return "", false
	}
	file, ok := t.files[NormalizeName(module)]
	return file, ok
}

// Builtin reports whether modules.builtin names the module: it is part of the kernel.
func (t *Tree) Builtin(module string) bool {
	return t != nil && t.builtin[NormalizeName(module)]
}

// Names returns the names of all modules in the tree, sorted.
func (t *Tree) Names() []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.files))
}

// Indexes returns the tree's index files ("modules.dep", "modules.builtin.bin", …), sorted.
func (t *Tree) Indexes() []string {
	if t == nil {
		return nil
	}
	return slices.Clone(t.indexes)
}

// Info returns the facts about a module of the tree; they are read once. The result is shared: do
// not change it. A module that is not there is an error that wraps fs.ErrNotExist.
func (t *Tree) Info(module string) (*Info, error) {
	file, ok := t.Path(module)
	if !ok {
		return nil, fmt.Errorf("module %s: %w", module, fs.ErrNotExist)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	result, ok := t.infos[file]
	if !ok {
		result.info, result.err = ReadFile(t.fsys, file)
		if result.err == nil || errors.Is(result.err, ErrMalformed) || errors.Is(result.err, ErrTooLarge) {
			t.infos[file] = result // an I/O error may pass, the content stays
		}
	}
	return result.info, result.err
}

// alias returns the modules that modules.alias gives for an exact name, in its order, without the
// wildcards of devices: dependencies name exact aliases ("crypto-crc32c").
func (t *Tree) alias(name string) []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aliases == nil {
		t.aliases = map[string][]string{}
		// Without a readable index there are no aliases, which only name optional dependencies.
		if content, err := t.index("modules.alias"); err == nil {
			t.aliases = parseAliases(content)
		}
	}
	return t.aliases[NormalizeName(name)]
}

func parseAliases(content []byte) map[string][]string {
	aliases := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "alias" || strings.ContainsAny(fields[1], "*?[") {
			continue
		}
		alias, module := NormalizeName(fields[1]), NormalizeName(fields[2])
		aliases[alias] = append(aliases[alias], module)
	}
	return aliases
}
