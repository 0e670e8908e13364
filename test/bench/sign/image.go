// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// What it costs to sign one module in an image of 1 GiB: how much memory each step of drover-signer
// takes at most, and how much of the image is sent to the registry again. The steps run as
// processes of their own, as in a Job, against a registry on this machine.
const (
	imageBytes  = 1 << 30
	fileBytes   = 64 << 20
	moduleBytes = 1 << 20
	maxRSS      = 100 << 20
	module      = "opt/lib/modules/6.1.0/extra/demo.ko"
	// largeBytes is a module's size as large ones have with their debug information, and maxShare by
	// what share of that the memory of a step may grow.
	largeBytes = 192 << 20
	maxShare   = 1.5
)

// image is one with a module. Everything else in it cannot be compressed.
type image struct {
	bytes, moduleBytes int64
	// compressed is true if the module's file is in zstd.
	compressed bool
}

// path of the module's file.
func (i image) path() string {
	if i.compressed {
		return module + ".zst"
	}
	return module
}

// file is a module with noise behind it. In a compressed one the noise has two bits a byte, so that
// a compressor finds something to do.
func (i image) file() ([]byte, error) {
	content := synth.Module{Name: "demo", Vermagic: "6.1.0 SMP preempt mod_unload "}.Bytes()
	all := append(content, make([]byte, i.moduleBytes-int64(len(content)))...)
	padding := all[len(content):]
	if _, err := mathrand.NewChaCha8([32]byte{1}).Read(padding); err != nil || !i.compressed {
		return all, err
	}
	for at := range padding {
		padding[at] &= 3
	}
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(all)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// signed is what it took to sign one module of an image.
type signed struct {
	ImageBytes  int64 `json:"imageBytes"`
	ModuleBytes int64 `json:"moduleBytes"`
	// FileBytes is the size of the module's file, compressed if it is.
	FileBytes   int64 `json:"fileBytes"`
	PushedBytes int64 `json:"pushedBytes"`
	// PeakRSS is by step, in bytes.
	PeakRSS map[string]int64 `json:"peakRSS"`
	Seconds float64          `json:"seconds"`
}

// wrong names every bound that the result breaks.
func (r signed) wrong() error {
	var errs []error
	if r.PushedBytes > 2*r.FileBytes || r.PushedBytes == 0 {
		errs = append(errs, fmt.Errorf("%d bytes were sent for a file of %d", r.PushedBytes, r.FileBytes))
	}
	return errors.Join(errs...)
}

// tooMuch names the steps that took more memory than they may: those of a small module, and by how
// much those of a large one took more.
func tooMuch(small, large *signed) error {
	var errs []error
	for step, rss := range small.PeakRSS {
		if rss > maxRSS {
			errs = append(errs, fmt.Errorf("%s took %d bytes of memory, limit %d", step, rss, maxRSS))
		}
		if more := large.PeakRSS[step] - rss; float64(more) > maxShare*float64(large.ModuleBytes) {
			errs = append(errs, fmt.Errorf("%s took %d bytes of memory more for a module of %d", step, more, large.ModuleBytes))
		}
	}
	return errors.Join(errs...)
}

// signImage makes an image of a size with one module, and a registry, and runs the steps.
func signImage(ctx context.Context, of image) (_ *signed, err error) {
	dir, err := os.MkdirTemp("", "drover-bench-image-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	signer := filepath.Join(dir, "drover-signer")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", signer, "./cmd/drover-signer").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, said)
	}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("make folders: %w", err)
	}
	var sent atomic.Int64
	blobs := registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Join(dir, "blobs"))))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &counted{r.Body, &sent}
		blobs.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	file, err := of.file()
	if err != nil {
		return nil, fmt.Errorf("make a module: %w", err)
	}
	if err := of.push(ctx, dir, host+"/unsigned:1", file); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	if err := secrets(dir); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	r := &signed{ImageBytes: of.bytes, ModuleBytes: of.moduleBytes, FileBytes: int64(len(file))}
	begin := time.Now()
	if r.PeakRSS, err = steps(ctx, dir, signer, host, &sent); err != nil {
		return nil, err
	}
	r.PushedBytes, r.Seconds = sent.Load(), rounded(time.Since(begin).Seconds(), 1)
	return r, nil
}

// steps of a signing Job. What the last one sends stays in sent.
func steps(ctx context.Context, dir, signer, host string, sent *atomic.Int64) (peakRSS map[string]int64, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	peakRSS = map[string]int64{}
	layout := filepath.Join(dir, "layout")
	for _, args := range [][]string{
		{"check", "--image", host + "/signed:1", "--hash", "h"},
		{"pull", "--image", host + "/unsigned:1", "--layout", layout},
		{"sign", "--layout", layout, "--key", filepath.Join(dir, "key"), "--cert", filepath.Join(dir, "cert"), "--file",
			"/opt/lib/modules/*/extra/*.ko*"},
		{"examine", "--layout", layout, "--image", host + "/signed:1", "--kernel", "6.1.0", "--arch", "amd64"},
		{"push", "--image", host + "/signed:1", "--layout", layout, "--hash", "h", "--mount-from", host + "/unsigned:1"},
	} {
		sent.Store(0)
		cmd := exec.CommandContext(ctx, self, append(append([]string{peak, signer}, args...), "--termination-message",
			filepath.Join(dir, "message"))...)
		cmd.Stderr = os.Stderr
		told, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
		if peakRSS[args[0]], err = strconv.ParseInt(strings.TrimSpace(string(told)), 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return peakRSS, nil
}

// peak is this program's argument that makes it run a command and print how much memory that took
// at most. It is a process of its own: a child's figure starts with its parent's, which here holds
// a registry.
const peak = "peak"

func peakOf(command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("the system does not tell")
	}
	fmt.Println(usage.Maxrss << 10)
	return nil
}

type counted struct {
	io.ReadCloser
	sent *atomic.Int64
}

// Read implements io.Reader.
func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.sent.Add(int64(n))
	return n, err
}

// push makes an image of one layer: files that nobody can compress, and one module.
func (i image) push(ctx context.Context, dir, reference string, content []byte) (err error) {
	file := filepath.Join(dir, "layer.tar.gz")
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	packed, err := gzip.NewWriterLevel(out, gzip.NoCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	noise := mathrand.NewChaCha8([32]byte{})
	for at := range i.bytes / fileBytes {
		if err := archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/share/%d", at), Typeflag: tar.TypeReg, Mode: 0o644,
			Size: fileBytes}); err != nil {
			return err
		}
		if _, err := io.CopyN(archive, noise, fileBytes); err != nil {
			return err
		}
	}
	err = archive.WriteHeader(&tar.Header{Name: i.path(), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = archive.Write(content)
	}
	if err := errors.Join(err, archive.Close(), packed.Close(), out.Close()); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		return err
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	// The registry would take the layer through its memory: it finds it on its disk.
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	if err := os.Link(file, filepath.Join(dir, "blobs", "sha256", digest.Hex)); err != nil {
		return err
	}
	return errors.Join(remote.Write(tag, made, remote.WithContext(ctx)), os.Remove(file))
}

func secrets(dir string) error {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "key"), key, 0o600),
		os.WriteFile(filepath.Join(dir, "cert"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
}
