// SPDX-License-Identifier: Apache-2.0

package headers

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"pault.ag/go/debian/deb"
)

// machines are the architectures of distributions as images spell them. Packages for all have none.
var machines = map[string]string{"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}

// entry is one file, folder or symbolic link of a package.
type entry struct {
	// path has no leading slash and no "..".
	path    string
	mode    int64
	kind    byte // as in an archive: tar.TypeReg, tar.TypeDir, tar.TypeSymlink
	link    string
	size    int64
	changed time.Time
}

// read calls visit for each entry of a package, .deb or .rpm by its content, and returns the
// architecture, "" for all.
func read(file string, visit func(entry, io.Reader) error) (arch string, err error) {
	opened, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("open the package: %w", err)
	}
	defer func() { _ = opened.Close() }()
	magic := make([]byte, 8)
	if _, err := io.ReadFull(opened, magic); err != nil {
		return "", fmt.Errorf("read the package %s: %w", file, err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte("!<arch>\n")):
		arch, err = readDeb(opened, file, visit)
	case bytes.HasPrefix(magic, []byte("\xed\xab\xee\xdb")):
		arch, err = readRPM(opened, visit)
	default:
		err = errors.New("it is neither a .deb nor an .rpm")
	}
	if err != nil {
		return "", fmt.Errorf("read the package %s: %w", file, err)
	}
	return arch, nil
}

func readDeb(file *os.File, name string, visit func(entry, io.Reader) error) (arch string, err error) {
	pkg, err := deb.Load(file, name)
	if err != nil {
		return "", fmt.Errorf("parse it: %w", err)
	}
	defer func() { _ = pkg.Close() }()
	for {
		header, err := pkg.Data.Next()
		if errors.Is(err, io.EOF) {
			return machines[pkg.Control.Architecture.CPU], nil
		}
		if err != nil {
			return "", fmt.Errorf("read its files: %w", err)
		}
		e := entry{path: clean(header.Name), mode: header.Mode & 0o777, kind: header.Typeflag, link: header.Linkname, size: header.Size,
			changed: header.ModTime}
		if err := visit(e, pkg.Data); err != nil {
			return "", err
		}
	}
}

func readRPM(file io.ReadSeeker, visit func(entry, io.Reader) error) (arch string, err error) {
	if err := checkRPM(file); err != nil {
		return "", err
	}
	buffered := bufio.NewReader(file)
	pkg, err := parseRPM(buffered)
	if err != nil {
		return "", fmt.Errorf("parse it: %w", err)
	}
	if format := pkg.PayloadFormat(); format != "cpio" {
		return "", fmt.Errorf("its payload is %q instead of cpio", format)
	}
	payload, done, err := decompress(pkg.PayloadCompression(), buffered)
	if err != nil {
		return "", err
	}
	defer done()
	archive := cpio.NewReader(payload)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return machines[pkg.Architecture()], nil
		}
		if err != nil {
			return "", fmt.Errorf("read its files: %w", err)
		}
		e := entry{path: clean(header.Name), mode: int64(header.Mode.Perm()), link: header.Linkname, size: header.Size, changed: header.ModTime}
		switch {
		case header.Mode.IsDir():
			e.kind = tar.TypeDir
		case header.Mode.IsRegular():
			e.kind = tar.TypeReg
		case header.Linkname != "":
			e.kind, e.size = tar.TypeSymlink, 0
		default: // a device, which no header package has
			return "", fmt.Errorf("%s is neither a file, nor a folder, nor a symbolic link", e.path)
		}
		if err := visit(e, archive); err != nil {
			return "", err
		}
	}
}

func decompress(how string, from io.Reader) (to io.Reader, done func(), err error) {
	switch how {
	case "xz", "lzma":
		to, err = xz.NewReader(from)
	case "gzip":
		to, err = gzip.NewReader(from)
	case "zstd":
		decoder, failed := zstd.NewReader(from)
		if failed != nil {
			return nil, nil, fmt.Errorf("decompress its files: %w", failed)
		}
		return decoder, decoder.Close, nil
	default:
		err = fmt.Errorf("compression %q is not supported", how)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("decompress its files: %w", err)
	}
	return to, func() {}, nil
}

// clean makes a path of a package relative to its root, and keeps it there.
func clean(name string) string { return strings.TrimPrefix(path.Join("/", name), "/") }
