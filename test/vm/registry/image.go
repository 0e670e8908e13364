// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one entry of an image.
type File struct {
	Content []byte
	// Mode holds the permission bits; 0 stands for 0644.
	Mode int64
	// Link makes the entry a symbolic link with this target.
	Link string
}

// Program is an executable file.
func Program(content []byte) File { return File{Content: content, Mode: 0o755} }

// Spec says what an image consists of.
type Spec struct {
	// Files by absolute path; the only layer holds them and their folders.
	Files map[string]File
	// Entrypoint, User and Env as in the image's configuration.
	Entrypoint []string
	User       string
	Env        []string
}

// Image makes an image for linux/amd64. Equal specs give equal digests.
func Image(spec Spec) (v1.Image, error) {
	content, err := layer(spec.Files)
	if err != nil {
		return nil, err
	}
	opened, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, opened)
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	file.Config = v1.Config{Entrypoint: spec.Entrypoint, User: spec.User, Env: spec.Env}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return image, nil
}

// layer writes the files as a tar archive, folders before what is in them.
func layer(files map[string]File) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		relative, absolute := strings.CutPrefix(path.Clean(name), "/")
		if !absolute || relative == "" {
			return nil, fmt.Errorf("the image's file %q has no absolute path", name)
		}
		if err := folders(archive, made, path.Dir(relative)); err != nil {
			return nil, err
		}
		if err := entry(archive, relative, files[name]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("write the layer: %w", err)
	}
	return out.Bytes(), nil
}

func folders(archive *tar.Writer, made map[string]bool, name string) error {
	if made[name] {
		return nil
	}
	if err := folders(archive, made, path.Dir(name)); err != nil {
		return err
	}
	made[name] = true
	header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write folder %s: %w", name, err)
	}
	return nil
}

func entry(archive *tar.Writer, name string, file File) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(file.Content)), ModTime: time.Unix(0, 0)}
	if file.Mode != 0 {
		header.Mode = file.Mode
	}
	if file.Link != "" {
		header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, file.Link, 0
		file.Content = nil
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := archive.Write(file.Content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
