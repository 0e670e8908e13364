// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
)

// File is one regular file for a guest.
type File struct {
	Content []byte
	// Mode holds the permission bits; 0 stands for 0644.
	Mode uint32
}

// Modes of the newc format's entries.
const (
	cpioDirectory = 0o040755
	cpioRegular   = 0o100000
)

// WriteCPIO writes files, by path without a leading slash, and the folders
// they need as a newc archive, the form in which the kernel takes initial RAM
// disks. Folders named with an empty content and a trailing slash are made
// empty. The result depends on the arguments alone.
func WriteCPIO(w io.Writer, files map[string]File) error {
	archive := &cpioWriter{w: w, made: map[string]bool{".": true}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		if name[len(name)-1] == '/' {
			archive.folder(path.Clean(name))
			continue
		}
		archive.folder(path.Dir(name))
		mode := file.Mode
		if mode == 0 {
			mode = 0o644
		}
		archive.entry(name, cpioRegular|mode, file.Content)
	}
	archive.entry("TRAILER!!!", 0, nil)
	return archive.err
}

// cpioWriter keeps the first error, so that callers check once.
type cpioWriter struct {
	w     io.Writer
	made  map[string]bool
	inode int
	err   error
}

func (c *cpioWriter) folder(name string) {
	if c.made[name] {
		return
	}
	c.folder(path.Dir(name))
	c.made[name] = true
	c.entry(name, cpioDirectory, nil)
}

// entry writes a header of thirteen 8-digit hexadecimal fields, the name and
// the content, the latter two padded to 4 bytes.
func (c *cpioWriter) entry(name string, mode uint32, content []byte) {
	if c.err != nil {
		return
	}
	c.inode++
	var out bytes.Buffer
	fmt.Fprintf(&out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	out.WriteString(name)
	out.WriteByte(0)
	pad(&out)
	out.Write(content)
	pad(&out)
	if _, err := c.w.Write(out.Bytes()); err != nil {
		c.err = fmt.Errorf("write archive: %w", err)
	}
}

func pad(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}
