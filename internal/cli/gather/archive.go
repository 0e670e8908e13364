// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// file is one of the archive.
type file struct {
	name    string
	content string
}

// bundle is what is gathered, in the order in which it matters: what does not fit is left out at
// the end.
type bundle struct {
	files []file
	// notes say what could not be read, and what was left out.
	notes []string
}

func (b *bundle) add(name, content string) { b.files = append(b.files, file{name, content}) }

func (b *bundle) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// write writes the archive, below one folder. Each text goes through clean first; no more than
// limit bytes, before they are packed.
func (b *bundle) write(out io.Writer, folder string, at time.Time, limit int, clean func(string) string) (written int, err error) {
	packed := gzip.NewWriter(out)
	archive := tar.NewWriter(packed)
	put := func(name, content string) error {
		header := &tar.Header{Name: path.Join(folder, name), Mode: 0o644, Size: int64(len(content)), ModTime: at, Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		if _, err := io.WriteString(archive, content); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		return nil
	}
	for _, f := range b.files {
		content := clean(f.content)
		if written+len(content) > limit {
			b.note("left out, because it is beyond --max-bytes: %s (%d bytes)", f.name, len(content))
			continue
		}
		if err := put(f.name, content); err != nil {
			return written, err
		}
		written += len(content)
	}
	notes := "Nothing is missing.\n"
	if len(b.notes) > 0 {
		notes = ""
		for _, n := range b.notes {
			notes += n + "\n"
		}
	}
	err = put("notes.txt", clean(notes))
	if err = errors.Join(err, archive.Close(), packed.Close()); err != nil {
		return written, fmt.Errorf("finish the archive: %w", err)
	}
	return written, nil
}
