// SPDX-License-Identifier: Apache-2.0

package imagefs_test

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/build/examine"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/signer"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
)

// TestAlike runs each case with all that use an image: what a node delivers, lint, preflight and a
// build's examination accept, and the signer signs, they all do; what one refuses, all refuse, in
// the same words.
func TestAlike(t *testing.T) {
	for _, c := range linkCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for who, use := range users(t) {
				if who == "signer" && c.unsigned {
					continue
				}
				err := use(t, c)
				switch {
				case c.refused == "" && err != nil:
					t.Errorf("%s refuses it: %v", who, err)
				case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
					t.Errorf("%s does not say %q but: %v", who, c.refused, err)
				case c.refused == "":
					damagedIsSeen(t, who, use, c)
				}
			}
		})
	}
}

// damagedIsSeen: whoever does not refuse a damaged module has not seen it.
func damagedIsSeen(t *testing.T, who string, use func(*testing.T, linkCase) error, c linkCase) {
	t.Helper()
	c.files, c.firmware = maps.Clone(c.files), nil
	for name, content := range c.files {
		if name != topFile && path.Base(name) != "top.ko" && content == module {
			c.files[name] = "\x7fELF"
		}
	}
	if err := use(t, c); err == nil {
		t.Errorf("%s did not see the module below", who)
	}
}

// users of images, by name. Each wants top, and firmware if the case has it.
func users(t *testing.T) map[string]func(*testing.T, linkCase) error {
	t.Helper()
	return map[string]func(*testing.T, linkCase) error{
		"export":            func(t *testing.T, c linkCase) error { return exports(t, c, c.folder(t)) },
		"export after bake": func(t *testing.T, c linkCase) error { return exports(t, c, c.unpacked(t)) },
		"lint of a folder":  func(t *testing.T, c linkCase) error { return lints(t, c, c.folder(t)) },
		"lint of an image":  func(t *testing.T, c linkCase) error { return lints(t, c, c.layout(t)) },
		"examine": func(t *testing.T, c linkCase) error {
			return step(t, examine.Command(), append(c.args(), "--arch", "amd64", "--layout", c.layout(t), "--image", "example.com/top")...)
		},
		"preflight": func(t *testing.T, c linkCase) error {
			return step(t, examine.Command(), append(c.args(), "--arch", "amd64", "--insecure", "--image", c.pushed(t))...)
		},
		"signer": func(t *testing.T, c linkCase) error {
			key, certificate := pair(t)
			return step(t, signer.SignCommand(signer.ReadKey), "--layout", c.layout(t), "--key", key, "--cert", certificate,
				"--file", "/"+modulesDir+"/*.ko", "--file", "/"+modulesDir+"/*/*.ko")
		},
	}
}

func (c linkCase) args() []string {
	args := []string{"--kernel", kernel, "--dir-name", "/opt", "--module", "top"}
	if c.wantsFirmware() {
		args = append(args, "--firmware-path", "/firmware")
	}
	return args
}

func (c linkCase) wantsFirmware() bool {
	return slices.ContainsFunc(slices.Concat(slices.Collect(maps.Keys(c.files)), slices.Collect(maps.Keys(c.links))),
		func(name string) bool { return strings.HasPrefix(name, "firmware") })
}

func exports(t *testing.T, c linkCase, from string) error {
	t.Helper()
	for _, whole := range []bool{false, true} {
		o := export.Options{From: from, To: t.TempDir(), Kernel: kernel, DirName: "/opt", Module: "top", WholeTree: whole}
		if c.wantsFirmware() {
			o.FirmwarePath = "/firmware"
		}
		if err := export.Run(klog.NewContext(t.Context(), klog.FromContext(t.Context()).V(1)), o); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(filepath.Join(o.To, manifest.ErrorFile)); err == nil {
			failure, err := manifest.ParseFailure(raw)
			return errors.Join(failure, err)
		}
		raw, err := os.ReadFile(filepath.Join(o.To, manifest.File))
		if err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, c, m)
	}
	return nil
}

// holds says what is delivered that is not of the image, or that lacks.
func holds(t *testing.T, c linkCase, m manifest.Manifest) {
	t.Helper()
	var firmware, below []string
	for _, e := range m.Files {
		if name, ok := strings.CutPrefix(e.Path, manifest.FirmwareDir+"/"); ok {
			firmware = append(firmware, name)
		}
		if path.Base(e.Path) == "below.ko" {
			below = append(below, e.Path)
		}
	}
	if diff := cmp.Diff(c.firmware, firmware); diff != "" && c.firmware != nil {
		t.Errorf("firmware (-want +got):\n%s", diff)
	}
	if len(below) == 0 {
		t.Errorf("below is not delivered: %v", m.Files)
	}
}

func lints(t *testing.T, c linkCase, image string) error {
	t.Helper()
	out, code := clitest.Run(t, &rest.Config{}, "default", lint.NewCommand, append(c.args(), image)...)
	if code != 0 {
		return errors.New(out)
	}
	if !strings.Contains(out, "all are available") {
		t.Errorf("lint does not find below:\n%s", out)
	}
	return nil
}

func step(t *testing.T, cmd *cobra.Command, args ...string) error {
	t.Helper()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(io.Discard)
	cmd.SetArgs(append(args, "--termination-message", filepath.Join(t.TempDir(), "message")))
	return cmd.ExecuteContext(t.Context())
}

// pair writes a private key and its certificate.
func pair(t *testing.T) (key, certificate string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Drivers"}, SubjectKeyId: []byte{1}}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, certificate = filepath.Join(dir, "key"), filepath.Join(dir, "certificate")
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	write(t, certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}))
	return key, certificate
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// content of the image's file.
func (i image) content(name string) []byte {
	if i.files[name] != module {
		return []byte(i.files[name])
	}
	m := synth.Module{Name: "below", Vermagic: kernel + " SMP mod_unload ", Machine: synth.MachineX86_64}
	if path.Base(name) == "top.ko" {
		m.Name, m.Depends = "top", []string{"below"}
	}
	return m.Bytes()
}

// folder is the image's root as a node mounts it.
func (i image) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	for name := range i.files {
		write(t, at(name), i.content(name))
	}
	var errs []error
	for _, name := range i.pipes {
		errs = append(errs, syscall.Mkfifo(at(name), 0o644))
	}
	for name, target := range i.links {
		errs = append(errs, os.Symlink(target, at(name)))
	}
	for _, name := range i.hardSorted() {
		errs = append(errs, os.Link(at(i.hard[name]), at(name)))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hardSorted are the hard links, each after what it is another name of.
func (i image) hardSorted() []string {
	return slices.SortedFunc(maps.Keys(i.hard), func(a, b string) int {
		switch {
		case i.hard[a] == b:
			return 1
		case i.hard[b] == a:
			return -1
		}
		return strings.Compare(a, b)
	})
}

// built is the image, of one layer.
func (i image) built(t *testing.T) v1.Image {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	add := func(h tar.Header, content []byte) {
		h.Mode, h.Size = 0o644, int64(len(content))
		if err := archive.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.files)) {
		add(tar.Header{Name: name, Typeflag: tar.TypeReg}, i.content(name))
	}
	for _, name := range i.pipes {
		add(tar.Header{Name: name, Typeflag: tar.TypeFifo}, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(i.links)) {
		add(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: i.links[name]}, nil)
	}
	for _, name := range i.hardSorted() {
		add(tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: i.hard[name]}, nil)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, static.NewLayer(out.Bytes(), types.OCIUncompressedLayer))
	if err == nil {
		made, err = mutate.ConfigFile(made, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: configOf(t, made).RootFS})
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func configOf(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// unpacked is the image's root as `drover bake` lays it out.
func (i image) unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := repack.Unpack(t.Context(), i.built(t), dir, repack.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// layout is the image in a folder, as between the steps of a Job.
func (i image) layout(t *testing.T) string {
	t.Helper()
	dir, made := t.TempDir(), i.built(t)
	layers, err := made.Layers()
	if err == nil {
		err = ocidir.Write(dir, made, layers)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// pushed is the image's name in a registry.
func (i image) pushed(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	name := strings.TrimPrefix(server.URL, "http://") + "/top:1"
	if err := images.Push(t.Context(), name, i.built(t)); err != nil {
		t.Fatal(err)
	}
	return name
}
