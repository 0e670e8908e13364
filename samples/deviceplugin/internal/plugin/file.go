// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io/fs"
	"os"
)

// file is one life of a path in the file system: a socket's or another file's.
type file struct {
	path string
	info fs.FileInfo
}

func observe(path string) (file, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return file{}, fmt.Errorf("look at a file: %w", err)
	}
	return file{path: path, info: info}, nil
}

// current says whether the file is still the one that was observed. The time
// is compared too, because file systems give freed inode numbers out again.
func (f file) current() bool {
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.info) && now.ModTime().Equal(f.info.ModTime())
}
