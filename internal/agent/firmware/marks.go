// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
)

// marksDir holds a mark for each file that is ours: a/b.bin with digest D is ours as long as it is
// the same inode as the hard link .drover/a/b.bin/D. So no record of ownership can disagree with
// the disk: what somebody puts in our file's place is another inode.
const marksDir = ".drover"

// errChanged says that somebody else made a change meanwhile.
var errChanged = errors.New("it changed while it was staged; try again")

// mark is one hard link.
type mark struct{ path, digest string }

func (t mark) name() string { return path.Join(marksDir, t.path, t.digest) }

// marksOf returns the digests under which the file is ours.
func (b base) marksOf(name string, info fs.FileInfo) ([]string, error) {
	dir, err := nofollow.OpenDir(b.root, path.Join(marksDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, wrap("list the marks of", name, err)
	}
	var digests []string
	for _, e := range entries {
		other, err := dir.Lstat(e.Name())
		if err != nil {
			return nil, wrap("look at a mark of", name, err)
		}
		if manifest.ValidSum(e.Name()) && os.SameFile(info, other) {
			digests = append(digests, e.Name())
		}
	}
	return digests, nil
}

// prepare makes the mark of a file that is to be staged, with its content, synced.
func (b base) prepare(files fs.FS, s source) error {
	t := mark{s.path, s.digest}
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
		digest, n, err := manifest.Sum(io.TeeReader(io.LimitReader(b.dog.Reader(from), s.size+1), to))
		if err == nil && (n != s.size || digest != s.digest) {
			err = errors.New("the delivery changed while it was read")
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.rename(tmp, t.name())
}

// intact tells whether the mark is there with the right content.
func (b base) intact(t mark) (bool, error) {
	f, _, err := b.open(t.name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	digest, _, err := manifest.Sum(b.dog.Reader(f))
	return digest == t.digest, wrap("read", t.name(), err)
}

// place makes a marked file appear under its name in one step, unless there is a file that is not
// ours.
func (b base) place(s source) error {
	dir := path.Dir(s.path)
	if err := b.mkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := mark{s.path, s.digest}
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

// replace puts a marked file in the place of another one of ours.
func (b base) replace(s source, t mark) error {
	tmp := t.name() + tmpSuffix
	if err := b.remove(tmp); err != nil {
		return err
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
	return b.rename(tmp, s.path)
}

// list finds all marks, leftovers of making them, and all directories, parents first.
func (b base) list() (marks []mark, leftovers, dirs []string, err error) {
	top, err := b.root.Lstat(marksDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err == nil && !top.IsDir() {
		err = &nofollow.KindError{Path: marksDir, Mode: top.Mode()}
	}
	if err != nil {
		return nil, nil, nil, wrap("list", marksDir, err)
	}
	err = fs.WalkDir(b.root.FS(), marksDir, func(name string, entry fs.DirEntry, err error) error {
		owner := path.Dir(name[len(marksDir):])
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			dirs = append(dirs, name)
		case !entry.Type().IsRegular() || owner == "/" || owner == ".":
			// We did not make it: it stays, and so does its directory.
		case manifest.ValidSum(entry.Name()):
			marks = append(marks, mark{path: owner[1:], digest: entry.Name()})
		case path.Ext(entry.Name()) == tmpSuffix:
			leftovers = append(leftovers, name)
		}
		return nil
	})
	return marks, leftovers, dirs, wrap("list", marksDir, err)
}

// staged returns the files that are ours, and whether anything of ours is there at all.
func (b base) staged() (files map[string]string, some bool, err error) {
	marks, leftovers, dirs, err := b.list()
	if err != nil {
		return nil, false, err
	}
	files = map[string]string{}
	var all []error
	for _, t := range marks {
		now, err := b.look(source{path: t.path, digest: t.digest, size: -1})
		switch {
		case err != nil: // when in doubt, it is needed
			all = append(all, err)
			files[t.path] = t.digest
		case now.ours:
			files[t.path] = now.digest
		}
	}
	return files, len(marks)+len(leftovers)+len(dirs) > 0, errors.Join(all...)
}

// sweep removes what is ours and not wanted, restores what is wanted and gone, and removes
// directories that are empty: ours and those of made. Marks that are prepared stay. It returns what
// is left of made.
func (b base) sweep(wanted, prepared func(mark) bool, made []string) ([]string, error) {
	marks, leftovers, dirs, err := b.list()
	if err != nil {
		return made, err
	}
	var all []error
	for _, name := range leftovers {
		all = append(all, b.remove(name))
	}
	for _, t := range marks {
		if !wanted(t) && !prepared(t) {
			all = append(all, b.drop(t))
		}
	}
	for _, t := range marks {
		if wanted(t) {
			all = append(all, b.restore(t))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		_, err := b.rmdir(dir)
		all = append(all, err)
	}
	var left []string
	for _, dir := range slices.Backward(slices.Compact(slices.Sorted(slices.Values(made)))) { // children first
		gone, err := b.rmdir(dir)
		if all = append(all, err); !gone {
			left = append(left, dir)
		}
	}
	return left, errors.Join(all...)
}

// drop removes a file of ours and then its mark. A file that is no longer ours stays.
func (b base) drop(t mark) error {
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

// restore places a wanted file that somebody removed.
func (b base) restore(t mark) error {
	if _, err := b.root.Lstat(t.path); !errors.Is(err, fs.ErrNotExist) {
		return nil // Add judges what is there
	}
	if ok, err := b.intact(t); !ok || err != nil {
		return err
	}
	return b.place(source{path: t.path, digest: t.digest, size: -1})
}
