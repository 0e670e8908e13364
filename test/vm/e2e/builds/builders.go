// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/internal/build/headers"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// nativeSpace enforces Pod Security "restricted", which native builds need no more than;
	// dockerSpace is for builds from Dockerfiles.
	nativeSpace, dockerSpace = "e2e-native", "e2e-docker"
	// PodRegistry is the registry's address for pods, whose packets do not leave their node: it
	// forwards them from an address of its own.
	PodRegistry = "10.0.0.1:5000"
	// magic ends a kernel module that is signed.
	magic = "~Module signature appended~\n"

	// ToolchainImage has the compiler, in the registry.
	ToolchainImage, headersImage = "tools/toolchain:12", "tools/headers:"
)

// builders puts a toolchain, Buildah, headers and drover-signer into the registry, and deploys the
// operator with them.
func (s *Steps) builders(ctx context.Context) error {
	if err := s.PushProgram(ctx, "drover-signer"); err != nil {
		return err
	}
	toolchain, err := s.Cache.Toolchain(ctx, s.Release())
	if err != nil {
		return err
	}
	if _, err := s.PushArchive(ctx, toolchain, ToolchainImage); err != nil {
		return err
	}
	buildah, err := s.Cache.Buildah(ctx)
	if err != nil {
		return err
	}
	pinned, err := s.PushArchive(ctx, buildah, "tools/buildah:1")
	if err != nil {
		return err
	}
	if err := s.PushHeaders(ctx, s.Release()); err != nil {
		return err
	}
	patch := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: drover-images, namespace: %s}, data: {buildah: %q}}",
		suite.OperatorNamespace, pinned)
	if err := s.WithComponent(ctx, "build", patch); err != nil {
		return err
	}
	if err := errors.Join(s.buildSpace(ctx, nativeSpace, "restricted"), s.buildSpace(ctx, dockerSpace, "privileged")); err != nil {
		return err
	}
	return s.Eventually(ctx, "the operator that builds is ready", s.Deployed)
}

// buildSpace makes a namespace with a key for signing and the registry as Buildah finds it.
func (s *Steps) buildSpace(ctx context.Context, space, podSecurity string) error {
	if err := s.Namespace(ctx, space, podSecurity); err != nil {
		return err
	}
	return s.BuildInputs(ctx, space)
}

// BuildInputs are what builds of a namespace find there.
func (s *Steps) BuildInputs(ctx context.Context, space string) error {
	if s.signingKey == nil {
		if err := s.makeKey(); err != nil {
			return err
		}
	}
	mirror := fmt.Sprintf("[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", registry.Host, PodRegistry)
	return errors.Join(
		s.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "key"},
			Data: map[string][]byte{"key": s.signingKey}}),
		s.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "cert"},
			Data: map[string][]byte{"cert": s.signingCert}}),
		s.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: pipeline.EnvironmentConfigMap}, Data: map[string]string{"mirrors.conf": mirror},
		}),
	)
}

func (s *Steps) makeKey() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "drover e2e"}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	s.signingKey = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	s.signingCert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return nil
}

// PushArchive pushes an image whose one layer is a root file system.
func (s *Steps) PushArchive(ctx context.Context, archive, repository string) (pinned string, err error) {
	layer, err := tarball.LayerFromFile(archive)
	if err != nil {
		return "", err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return "", err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	file.Config = v1.Config{User: "0", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return "", err
	}
	_, pinned, err = s.Registry.Push(ctx, repository, image)
	return pinned, err
}

// PushHeaders makes the image of a kernel's headers as `drover headers-image` does.
func (s *Steps) PushHeaders(ctx context.Context, release string) error {
	packages, err := s.Cache.HeaderPackages(ctx, release)
	if err != nil {
		return err
	}
	made, err := headers.Make(s.Dir, packages...)
	if err != nil {
		return err
	}
	_, _, err = s.Registry.Push(ctx, headersImage+suite.TagOf(release), made.Image)
	return err
}

// pushSource pushes a folder as an image with its files at the root.
func (s *Steps) pushSource(ctx context.Context, dir, repository string) error {
	files := map[string]registry.File{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		info, statErr := entry.Info()
		if err := errors.Join(err, statErr); err != nil {
			return err
		}
		files["/"+filepath.ToSlash(relative)] = registry.File{Content: content, Mode: int64(info.Mode().Perm())}
		return nil
	})
	if err != nil {
		return err
	}
	image, err := registry.Image(registry.Spec{Files: files})
	if err != nil {
		return err
	}
	_, _, err = s.Registry.Push(ctx, repository, image)
	return err
}

// local is an image in the registry as this process finds it.
func (s *Steps) local(repository string) (name.Reference, error) {
	return name.ParseReference(net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Registry.Port()))+"/"+repository, name.Insecure)
}

// modulesIn are the kernel modules of an image in the registry, true for those that are signed.
func (s *Steps) modulesIn(ctx context.Context, repository string) (found map[string]bool, err error) {
	reference, err := s.local(repository)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(reference, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	flat := mutate.Extract(image)
	defer func() { err = errors.Join(err, flat.Close()) }()
	found = map[string]bool{}
	for archive := tar.NewReader(flat); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(header.Name, ".ko") {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		found[strings.TrimSuffix(filepath.Base(header.Name), ".ko")] = bytes.HasSuffix(content, []byte(magic))
	}
}

// signedWhole checks that an image holds these modules, all of them signed.
func (s *Steps) signedWhole(ctx context.Context, repository string, modules ...string) error {
	got, err := s.modulesIn(ctx, repository)
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for _, module := range modules {
		want[module] = true
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("%s holds %v instead of %v", repository, got, want)
	}
	return nil
}
