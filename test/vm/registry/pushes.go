// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// signatureMagic ends a kernel module that is signed.
const signatureMagic = "~Module signature appended~\n"

// Push is a manifest or a blob that the registry was sent, in the order in which they came.
type Push struct {
	// Repository it was sent to, and the tag or digest.
	Repository, Reference string
	// Manifest: it is no blob.
	Manifest bool
	// Modules are the kernel modules in a layer, or in a manifest's image as it is pulled, true for
	// those that are signed. A compressed one is not looked into, and counts as unsigned.
	Modules map[string]bool
}

// Unsigned are the layer's modules without a signature, sorted.
func (p *Push) Unsigned() []string {
	var names []string
	for name, signed := range p.Modules {
		if !signed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// blobStore is all that the library's store of blobs can do.
type blobStore interface {
	registry.BlobHandler
	registry.BlobStatHandler
	registry.BlobPutHandler
}

// recorder is a store that remembers every blob it was ever sent, and the modules in it. What is
// sent in parts is a blob, and can be read by anybody, only when it is whole; then it comes here.
// As in a registry for many, a blob is only in the repositories that it was sent to.
type recorder struct {
	lock   sync.Mutex
	stores map[string]blobStore
	pushes []Push
}

// store of a repository. The library calls it otherwise where a blob is sent in parts.
func (r *recorder) store(repository string) (blobStore, error) {
	repository = repositoryOf(repository)
	r.lock.Lock()
	defer r.lock.Unlock()
	if store, ok := r.stores[repository]; ok {
		return store, nil
	}
	store, ok := registry.NewInMemoryBlobHandler().(blobStore)
	if !ok {
		return nil, errors.New("the library's store of blobs cannot be written")
	}
	r.stores[repository] = store
	return store, nil
}

func repositoryOf(repository string) string { return strings.TrimSuffix(repository, "/blobs") }

// Get implements the library's interface, as Stat and Put do.
func (r *recorder) Get(ctx context.Context, repository string, digest v1.Hash) (io.ReadCloser, error) {
	store, err := r.store(repository)
	if err != nil {
		return nil, err
	}
	return store.Get(ctx, repository, digest)
}

// Stat tells a blob's size.
func (r *recorder) Stat(ctx context.Context, repository string, digest v1.Hash) (int64, error) {
	store, err := r.store(repository)
	if err != nil {
		return 0, err
	}
	return store.Stat(ctx, repository, digest)
}

// Put looks through a blob before anybody can read it.
func (r *recorder) Put(ctx context.Context, repository string, digest v1.Hash, content io.ReadCloser) error {
	all, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return fmt.Errorf("receive a blob: %w", err)
	}
	modules, err := modulesOf(all)
	if err != nil {
		return fmt.Errorf("look through a blob: %w", err)
	}
	store, err := r.store(repository)
	if err != nil {
		return err
	}
	r.add(Push{Repository: repositoryOf(repository), Reference: digest.String(), Modules: modules})
	return store.Put(ctx, repository, digest, io.NopCloser(bytes.NewReader(all)))
}

func (r *recorder) add(p Push) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pushes = append(r.pushes, p)
}

// recording notes the manifests on their way to the library's handler.
func (r *recorder) recording(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if repository, reference, ok := strings.Cut(strings.TrimPrefix(request.URL.Path, "/v2/"), "/manifests/"); ok &&
			request.Method == http.MethodPut {
			body, err := io.ReadAll(request.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			request.Body = io.NopCloser(bytes.NewReader(body))
			r.add(Push{Repository: repository, Reference: reference, Manifest: true, Modules: r.flat(repository, body)})
		}
		next.ServeHTTP(w, request)
	})
}

// flat are the modules that whoever pulls an image finds in it: a later layer's hide those of the
// same path below. What a later layer removes counts.
func (r *recorder) flat(repository string, manifest []byte) map[string]bool {
	parsed, err := v1.ParseManifest(bytes.NewReader(manifest))
	if err != nil {
		return nil // an index; its images were sent by themselves
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	modules := map[string]bool{}
	for _, layer := range parsed.Layers {
		for i := range r.pushes {
			if p := &r.pushes[i]; p.Repository == repository && p.Reference == layer.Digest.String() {
				maps.Copy(modules, p.Modules)
			}
		}
	}
	return modules
}

// modulesOf are the kernel modules in a layer; a blob that is none has none.
func modulesOf(blob []byte) (map[string]bool, error) {
	var content io.Reader = bytes.NewReader(blob)
	switch {
	case bytes.HasPrefix(blob, []byte{0x1f, 0x8b}):
		unpacked, err := gzip.NewReader(content)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		content = unpacked
	case bytes.HasPrefix(blob, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacked, err := zstd.NewReader(content)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		defer unpacked.Close()
		content = unpacked
	case len(blob) < 263 || string(blob[257:262]) != "ustar":
		return nil, nil // an image's configuration
	}
	modules := map[string]bool{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modules, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a layer: %w", err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		file, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", header.Name, err)
		}
		if isModule(header.Name, file) {
			modules[path.Clean("/"+header.Name)] = bytes.HasSuffix(file, []byte(signatureMagic))
		}
	}
}

// isModule goes by the name, and by the content whatever the name is.
func isModule(name string, content []byte) bool {
	base := path.Base(name)
	if strings.HasSuffix(base, ".ko") || strings.Contains(base, ".ko.") {
		return true
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	return err == nil && file.Type == elf.ET_REL && file.Section(".modinfo") != nil
}

// Pushes is all that the registry was sent until now.
func (r *Registry) Pushes() []Push {
	r.recorder.lock.Lock()
	defer r.recorder.lock.Unlock()
	return slices.Clone(r.recorder.pushes)
}

// Wipe makes the registry forget all of a repository: its manifests and its blobs.
func (r *Registry) Wipe(ctx context.Context, repository string) error {
	var errs []error
	pushes := r.Pushes()
	for i := range pushes {
		if p := &pushes[i]; p.Repository == repository && p.Manifest {
			errs = append(errs, r.forget(ctx, repository, p.Reference))
		}
	}
	r.recorder.lock.Lock()
	defer r.recorder.lock.Unlock()
	delete(r.recorder.stores, repository)
	return errors.Join(errs...)
}
