// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io/fs"
	"os"
)

// socket is one life of a socket in the file system.
type socket struct {
	path string
	info fs.FileInfo
}

func observe(path string) (socket, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return socket{}, fmt.Errorf("look at socket: %w", err)
	}
	return socket{path: path, info: info}, nil
}

// current says whether the socket is still the one that was observed. The time
// is compared too, because file systems give freed inode numbers out again.
func (s socket) current() bool {
	now, err := os.Lstat(s.path)
	return err == nil && os.SameFile(now, s.info) && now.ModTime().Equal(s.info.ModTime())
}
