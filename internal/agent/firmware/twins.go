// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"

	"github.com/drover-project/drover/internal/agent/nofollow"
)

// twinsDir mirrors, in the staging directory itself, what is ours there: the file a/b.bin with digest D is ours as long as
// it is the same inode as the hard link .drover/a/b.bin/D. So ownership needs no record that could disagree with the
// disk: a file which somebody else puts in the place of ours is another inode, also when its content is the same.
const twinsDir = ".drover"

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// errChanged says that somebody else was faster.
var errChanged = errors.New("it changed while it was staged; try again")

// twin names one hard link.
type twin struct{ path, digest string }

func (t twin) name() string { return path.Join(twinsDir, t.path, t.digest) }

// twinsOf returns the digests under which the file is ours.
func (b base) twinsOf(name string, info fs.FileInfo) ([]string, error) {
	dir, err := nofollow.OpenDir(b.root, path.Join(twinsDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, wrap("list the twins of", name, err)
	}
	var digests []string
	for _, e := range entries {
		other, err := dir.Lstat(e.Name())
		if err != nil {
			return nil, wrap("look at a twin of", name, err)
		}
		if digestPattern.MatchString(e.Name()) && os.SameFile(info, other) {
			digests = append(digests, e.Name())
		}
	}
	return digests, nil
}

// prepare makes the twin of a file that is to be staged, complete and on disk, unless it is there.
func (b base) prepare(files fs.FS, s source) error {
	t := twin{s.path, s.digest}
	if err := b.mkdirAll(path.Dir(t.name()), 0o755); err != nil {
		return err
	}
	if ok, err := b.intact(t); ok || err != nil {
		return err
	}
	from, err := open(files, s.path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	tmp := t.name() + tmpSuffix
	err = b.write(tmp, 0o644, func(to io.Writer) error {
		digest, n, err := hash(io.TeeReader(io.LimitReader(from, s.size+1), to))
		if err == nil && (n != s.size || digest != s.digest) {
			err = errors.New("the delivery changed while it was read")
		}
		return err
	})
	if err != nil {
		return err
	}
	b.step("rename " + tmp)
	if err := b.root.Rename(tmp, t.name()); err != nil {
		return wrap("write", t.name(), err)
	}
	return b.syncDir(path.Dir(t.name()))
}

// intact tells whether the twin is there with its content.
func (b base) intact(t twin) (bool, error) {
	f, _, err := b.open(t.name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	digest, _, err := hash(f)
	return digest == t.digest, wrap("read", t.name(), err)
}

// place makes the twin's content appear under its name in one step. What is there and is not ours stays: *Conflict.
func (b base) place(s source) error {
	dir := path.Dir(s.path)
	if err := b.mkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := twin{s.path, s.digest}
	b.step("link " + s.path)
	err := b.root.Link(t.name(), s.path)
	if errors.Is(err, fs.ErrExist) {
		return b.replace(s, t)
	}
	if err != nil {
		return wrap("stage", s.path, err)
	}
	return b.syncDir(dir)
}

// replace puts the twin in the place of a file of ours.
func (b base) replace(s source, t twin) error {
	tmp := t.name() + tmpSuffix
	b.step("clear " + tmp)
	if err := b.root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap("stage", s.path, err)
	}
	b.step("link " + tmp)
	if err := b.root.Link(t.name(), tmp); err != nil {
		return wrap("stage", s.path, err)
	}
	now, err := b.look(s)
	switch {
	case err != nil:
		return err
	case now.digest == s.digest: // the host's own, or ours already
		return nil
	case now.absent:
		return wrap("stage", s.path, errChanged)
	case !now.ours:
		return &Conflict{Dir: b.dir, Path: s.path, Found: now.what}
	}
	b.step("rename " + tmp)
	if err := b.root.Rename(tmp, s.path); err != nil {
		return wrap("stage", s.path, err)
	}
	return b.syncDir(path.Dir(s.path))
}

// list walks the twins: those that are there, what else of ours lies between them (leftovers), and all directories, each
// after the one that holds it.
func (b base) list() (twins []twin, leftovers, dirs []string, err error) {
	top, err := b.root.Lstat(twinsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err == nil && !top.IsDir() {
		err = &nofollow.KindError{Path: twinsDir, Mode: top.Mode()}
	}
	if err != nil {
		return nil, nil, nil, wrap("list", twinsDir, err)
	}
	err = fs.WalkDir(b.root.FS(), twinsDir, func(name string, entry fs.DirEntry, err error) error {
		owner := path.Dir(name[len(twinsDir):])
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			dirs = append(dirs, name)
		case !entry.Type().IsRegular() || owner == "/" || owner == ".":
			// Not of our making: it stays, and keeps its directory.
		case digestPattern.MatchString(entry.Name()):
			twins = append(twins, twin{path: owner[1:], digest: entry.Name()})
		case path.Ext(entry.Name()) == tmpSuffix:
			leftovers = append(leftovers, name)
		}
		return nil
	})
	return twins, leftovers, dirs, wrap("list", twinsDir, err)
}

// staged returns the files that are ours now, and whether anything of ours is there at all.
func (b base) staged() (files map[string]string, some bool, err error) {
	twins, leftovers, dirs, err := b.list()
	if err != nil {
		return nil, false, err
	}
	files = map[string]string{}
	var all []error
	for _, t := range twins {
		now, err := b.look(source{path: t.path, digest: t.digest, size: -1})
		switch {
		case err != nil: // in doubt it is needed
			all = append(all, err)
			files[t.path] = t.digest
		case now.ours:
			files[t.path] = now.digest
		}
	}
	return files, len(twins)+len(leftovers)+len(dirs) > 0, errors.Join(all...)
}

// sweep removes what is ours and not wanted, puts back what is wanted and gone, and removes our empty directories, of
// made those that are. It returns what is left of made.
func (b base) sweep(wanted func(twin) bool, made []string) ([]string, error) {
	twins, leftovers, dirs, err := b.list()
	if err != nil {
		return made, err
	}
	var all []error
	for _, name := range leftovers {
		all = append(all, b.remove(name))
	}
	for _, t := range twins {
		if !wanted(t) {
			all = append(all, b.drop(t))
		}
	}
	for _, t := range twins {
		if wanted(t) {
			all = append(all, b.restore(t))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		_, err := b.rmdir(dir)
		all = append(all, err)
	}
	var left []string
	for _, dir := range deepestFirst(made) {
		gone, err := b.rmdir(dir)
		if all = append(all, err); !gone {
			left = append(left, dir)
		}
	}
	return left, errors.Join(all...)
}

// deepestFirst orders directories so that each comes before the one that holds it, each once.
func deepestFirst(dirs []string) []string {
	dirs = slices.Compact(slices.Sorted(slices.Values(dirs)))
	slices.Reverse(dirs)
	return dirs
}

// drop takes away a file of ours and then its twin. A file that is no longer ours stays.
func (b base) drop(t twin) error {
	now, err := b.look(source{path: t.path, digest: t.digest, size: -1})
	if err != nil {
		return err
	}
	if now.ours && now.digest == t.digest {
		if err := b.remove(t.path); err != nil {
			return err
		}
		if err := b.syncDir(path.Dir(t.path)); err != nil {
			return err
		}
	}
	return b.remove(t.name())
}

// restore puts a wanted file back that somebody removed.
func (b base) restore(t twin) error {
	if _, err := b.root.Lstat(t.path); !errors.Is(err, fs.ErrNotExist) {
		return nil // whatever is there is for Add to judge
	}
	if ok, err := b.intact(t); !ok || err != nil {
		return err
	}
	return b.place(source{path: t.path, digest: t.digest, size: -1})
}

func (b base) remove(name string) error {
	b.step("remove " + name)
	if err := b.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("firmware: remove %s: %w", name, err)
	}
	return nil
}
