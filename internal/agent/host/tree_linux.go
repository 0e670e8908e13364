// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"os"
	"path/filepath"
)

// maxLinks is how many links in a row are followed, as in the kernel.
const maxLinks = 40

// hostTree is a directory of the host whose root may be mounted elsewhere: a file's absolute link, as RHEL's weak-updates have them
// ("/lib/modules/<another kernel>/extra/…"), is meant from there.
type hostTree struct{ dir, root string }

// Open implements fs.FS. Files are *os.File.
func (t hostTree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.Open(t.follow(filepath.Join(t.dir, name)))
	if err != nil {
		return nil, err //nolint:wrapcheck // fs.FS asks for an *fs.PathError
	}
	return f, nil
}

// follow returns what an absolute link means on the host. Any other name, and a link among links that leads in a circle, is left to the caller.
func (t hostTree) follow(name string) string {
	for range maxLinks {
		target, err := os.Readlink(name)
		switch {
		case err != nil:
			return name
		case filepath.IsAbs(target):
			name = filepath.Join(t.root, target)
		default:
			name = filepath.Join(filepath.Dir(name), target)
		}
	}
	return name
}
