// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/drover-project/drover/internal/agent/manifest"
)

type file struct {
	// from is the path in the image, to the path in the tree.
	from, to string
}

type copier struct {
	image     image
	out       *os.Root
	left, max int64
}

func (c *copier) copy(f file) (manifest.Entry, error) {
	from, err := c.image.open(f.from)
	if err != nil {
		return manifest.Entry{}, err
	}
	defer func() { _ = from.Close() }()
	to := manifest.TreeDir + "/" + f.to
	if err := c.mkdir(path.Dir(to)); err != nil {
		return manifest.Entry{}, err
	}
	dst, err := create(c.out, to)
	if err != nil {
		return manifest.Entry{}, fmt.Errorf("write %s: %w", to, err)
	}
	// An error of the image is a failure to report, one of the output is to be tried again.
	src := &source{from: io.LimitReader(from, c.left+1)}
	sum, n, err := manifest.Sum(io.TeeReader(src, dst))
	err = errors.Join(err, dst.Close())
	switch {
	case src.err != nil:
		return manifest.Entry{}, unreadable(f.from, src.err)
	case err != nil:
		return manifest.Entry{}, fmt.Errorf("write %s: %w", to, err)
	case n > c.left:
		return manifest.Entry{}, manifest.Failed(manifest.ReasonImageTooLarge,
			"the node needs more than %d bytes of the image (at /%s)", c.max, f.from)
	}
	c.left -= n
	return manifest.Entry{Path: f.to, Size: n, SHA256: sum}, nil
}

// mkdir makes directories that the agent can enter whatever the umask.
func (c *copier) mkdir(dir string) error {
	if _, err := c.out.Lstat(dir); err == nil || dir == "." {
		return nil
	}
	if err := c.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	if err := c.out.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	if err := c.out.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// source remembers its error.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}
