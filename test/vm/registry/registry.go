// SPDX-License-Identifier: Apache-2.0

// Package registry is an OCI registry in this process, for virtual nodes: it
// listens on loopback, can be taken down and up again with its content, and
// is filled with images made from files, without any container engine.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Host is the registry's name in image references of pods. Nodes send every
// name to this registry, so any other does too.
const Host = "registry.test"

// Registry is an OCI registry that keeps its content in memory.
type Registry struct {
	handler  http.Handler
	recorder *recorder
	port     int
	server   *http.Server
	ended    chan error
}

// Start starts an empty registry on a free port of 127.0.0.1.
func Start() (*Registry, error) {
	recorder := &recorder{stores: map[string]blobStore{}}
	library := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(recorder))
	r := &Registry{handler: recorder.recording(library), recorder: recorder}
	if err := r.Up(); err != nil {
		return nil, err
	}
	return r, nil
}

// Port is the registry's port on 127.0.0.1; it stays the same over Down and Up.
func (r *Registry) Port() int { return r.port }

// Up takes the registry up again, on the port it had.
func (r *Registry) Up() error {
	if r.server != nil {
		return errors.New("the registry is up")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)))
	if err != nil {
		return fmt.Errorf("listen for the registry: %w", err)
	}
	if address, isTCP := listener.Addr().(*net.TCPAddr); isTCP {
		r.port = address.Port
	}
	server := &http.Server{Handler: r.handler}
	r.server, r.ended = server, make(chan error, 1)
	ended := r.ended
	go func() { ended <- server.Serve(listener) }()
	return nil
}

// Down takes the registry down: connections break, new ones are refused. The
// content stays.
func (r *Registry) Down() error {
	if r.server == nil {
		return nil
	}
	closeErr := r.server.Close()
	serveErr := <-r.ended
	r.server = nil
	if errors.Is(serveErr, http.ErrServerClosed) {
		serveErr = nil
	}
	if err := errors.Join(closeErr, serveErr); err != nil {
		return fmt.Errorf("stop the registry: %w", err)
	}
	return nil
}

// Push stores an image under a repository and tag, "kmods/demo:1" for example,
// and returns the references under which pods find it: by tag, and by digest.
func (r *Registry) Push(ctx context.Context, repository string, image v1.Image) (tagged, pinned string, err error) {
	target, err := name.NewTag(net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))+"/"+repository, name.Insecure)
	if err != nil {
		return "", "", fmt.Errorf("read the image's name: %w", err)
	}
	if err := remote.Write(target, image, remote.WithContext(ctx)); err != nil {
		return "", "", fmt.Errorf("push %s: %w", repository, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", "", fmt.Errorf("digest %s: %w", repository, err)
	}
	base := Host + "/" + target.RepositoryStr()
	return base + ":" + target.TagStr(), base + "@" + digest.String(), nil
}

// forget makes the registry forget a manifest by a tag and by its digest.
func (r *Registry) forget(ctx context.Context, repository, reference string) error {
	image, err := name.ParseReference(net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))+"/"+repository+":"+reference, name.Insecure)
	if strings.Contains(reference, ":") {
		image, err = name.ParseReference(net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))+"/"+repository+"@"+reference, name.Insecure)
	}
	if err != nil {
		return fmt.Errorf("read the image's name: %w", err)
	}
	found, err := remote.Head(image, remote.WithContext(ctx))
	if IsMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for %s: %w", image, err)
	}
	for _, each := range []name.Reference{image, image.Context().Digest(found.Digest.String())} {
		if err := remote.Delete(each, remote.WithContext(ctx)); err != nil && !IsMissing(err) {
			return fmt.Errorf("delete %s: %w", each, err)
		}
	}
	return nil
}

// IsMissing reports whether an answer of a registry says that something is not there.
func IsMissing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// PushPause makes the nodes' sandbox image from the path of its program.
func (r *Registry) PushPause(ctx context.Context, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the pause program: %w", err)
	}
	image, err := Image(Spec{Files: map[string]File{"/pause": Program(content)}, Entrypoint: []string{"/pause"}, User: "65535"})
	if err != nil {
		return err
	}
	_, _, err = r.Push(ctx, "pause:1", image)
	return err
}
