// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// read adds to found the programs of a file, by name, with the release of Go that each was compiled
// with. Other files have none.
func read(file string, found map[string]string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(file, ".spdx.json"):
		return bill(file, content, found)
	case strings.HasSuffix(file, ".tar.gz"):
		return tarball(file, content, found)
	case strings.HasSuffix(file, ".zip"):
		return zipped(file, content, found)
	}
	program(file, content, found)
	return nil
}

func program(name string, content []byte, found map[string]string) {
	if info, err := buildinfo.Read(bytes.NewReader(content)); err == nil {
		found[name] = info.GoVersion
	}
}

func tarball(file string, content []byte, found map[string]string) error {
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for archive := tar.NewReader(plain); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		inside, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		program(file+":"+entry.Name, inside, found)
	}
}

func zipped(file string, content []byte, found map[string]string) error {
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, entry := range archive.File {
		opened, err := entry.Open()
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		inside, err := io.ReadAll(opened)
		if err = errors.Join(err, opened.Close()); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		program(file+":"+entry.Name, inside, found)
	}
	return nil
}

// bill reads from an image's SBOM which standard library its programs hold: the compiler's.
func bill(file string, content []byte, found map[string]string) error {
	var document struct {
		Packages []struct {
			Name    string `json:"name"`
			Version string `json:"versionInfo"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, p := range document.Packages {
		if p.Name == "stdlib" {
			found[file+":"+p.Name+"@"+p.Version] = p.Version
		}
	}
	return nil
}
