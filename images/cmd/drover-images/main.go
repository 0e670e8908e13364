// SPDX-License-Identifier: Apache-2.0

// Command drover-images makes the images of this repository's programs, or that of a device
// operator in a repository of its own, and pushes them or writes them to files. It needs Go and
// nothing else.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/images"
)

// localPrefix names images in files when they go to no registry.
const localPrefix = "localhost/drover"

// mainImage is the one that --tag-base names when there are several.
const mainImage = "drover-operator"

type options struct {
	push       string
	tarballDir string
	layoutDir  string
	sbomDir    string
	attested   bool
	binaryDir  string
	repository string
	version    string
	tagBase    string
	tag        string
	arch       string
	only       string
	project    string
	image      string
	kmod       string
	pin        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "drover-images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	var o options
	flags := flag.NewFlagSet("drover-images", flag.ContinueOnError)
	flags.StringVar(&o.push, "push", "", "registry and prefix to push to, for example registry.example.com/drover")
	flags.StringVar(&o.tarballDir, "tarball-dir", "", "folder for files that docker load and ctr images import take")
	flags.StringVar(&o.layoutDir, "layout-dir", "", "folder for OCI image layouts, one per image")
	flags.StringVar(&o.sbomDir, "sbom-dir", "", "folder for files with what is in each image (SPDX) and how it was made (SLSA)")
	flags.BoolVar(&o.attested, "attest", true, "attach both to pushed images and to layouts; a registry must take artifacts for that")
	flags.StringVar(&o.binaryDir, "binary-dir", "dist/bin", "folder for the compiled programs")
	flags.StringVar(&o.repository, "repository", ".", "root of the checkout")
	flags.StringVar(&o.version, "version", "dev", "version of the programs, and tag of the images")
	flags.StringVar(&o.tagBase, "tag-base", "", "registry and name of the one image of --only, else of "+mainImage+
		"; other images lie beside it under their own names")
	flags.StringVar(&o.tag, "tag", "", "tag of the images; as --version without it")
	flags.StringVar(&o.arch, "arch", "amd64,arm64", "processors, separated by commas")
	flags.StringVar(&o.only, "only", "", "images to make, separated by commas; all without it")
	flags.StringVar(&o.project, "project", "", "make the image of a device operator of this name instead, whose main package is at "+
		"--repository")
	flags.StringVar(&o.image, "image", "", "with --project, the image's whole reference, for example registry.example.com/acme/operator:1.0")
	flags.BoolVar(&o.pin, "pin-kmod", false, "do nothing but write "+images.LockFile+": the newest packages of this machine's Debian")
	flags.StringVar(&o.kmod, "kmod", "auto", "kmod's modprobe in the agent's image: auto, as it can be fetched; require; omit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.pin {
		return o.pinKmod(ctx)
	}
	if o.push == "" && o.tarballDir == "" && o.layoutDir == "" && o.sbomDir == "" {
		return errors.New("say where the images go: --push, --tarball-dir or --layout-dir; or --sbom-dir, to learn what would be in them")
	}
	if (o.project == "") != (o.image == "") || o.project != "" && o.only != "" {
		return errors.New("--project and --image belong together, and go without --only")
	}
	if !slices.Contains([]string{kmodAuto, kmodRequire, kmodOmit}, o.kmod) {
		return fmt.Errorf("--kmod is %q: it is auto, require or omit", o.kmod)
	}
	programs, err := o.programs()
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := o.produce(ctx, out, program); err != nil {
			return err
		}
	}
	return nil
}

func (o options) programs() ([]images.Program, error) {
	if o.project != "" {
		return []images.Program{images.Project(o.project)}, nil
	}
	if o.only == "" {
		return images.Programs, nil
	}
	var chosen []images.Program
	for name := range strings.SplitSeq(o.only, ",") {
		program, err := images.Find(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, program)
	}
	return chosen, nil
}

// produce builds one program's image for every processor and puts it everywhere it shall go.
func (o options) produce(ctx context.Context, out io.Writer, program images.Program) error {
	builder := images.Builder{Repository: o.repository, Output: o.binaryDir, Version: o.version}
	if program.Kmod && o.kmod != kmodOmit {
		done, err := o.fetchKmod(ctx, out, &builder)
		if err != nil {
			return err
		}
		defer done()
	}
	byArch := map[string]v1.Image{}
	for arch := range strings.SplitSeq(o.arch, ",") {
		image, err := builder.Image(ctx, program, arch)
		if err != nil {
			return err
		}
		byArch[arch] = image
	}
	if o.tarballDir != "" {
		if err := o.saveTarballs(out, program, byArch); err != nil {
			return err
		}
	}
	index := images.MultiArch(byArch)
	said := &attestation{}
	if o.attested || o.sbomDir != "" {
		var err error
		if said, err = o.attest(ctx, program, byArch, index); err != nil {
			return fmt.Errorf("image %s: %w", program.Name, err)
		}
	}
	if o.sbomDir != "" {
		if err := said.save(out, o.sbomDir); err != nil {
			return err
		}
	}
	if !o.attested {
		said.Referrers = nil
	}
	return o.store(ctx, out, program, index, said.Referrers)
}

// store writes an index, with what refers to it, to a layout and a registry.
func (o options) store(ctx context.Context, out io.Writer, program images.Program, index v1.ImageIndex, referrers []v1.Image) error {
	if o.layoutDir != "" {
		folder := filepath.Join(o.layoutDir, program.Name)
		if err := images.SaveAttested(folder, o.imageTag(), index, referrers); err != nil {
			return fmt.Errorf("image %s: %w", program.Name, err)
		}
		if err := report(out, folder, index); err != nil {
			return err
		}
	}
	if o.push == "" {
		return nil
	}
	reference := o.reference(program)
	if err := images.Push(ctx, reference, index); err != nil {
		return fmt.Errorf("image %s: %w", program.Name, err)
	}
	for _, referrer := range referrers {
		if err := images.Attach(ctx, reference, referrer); err != nil {
			return fmt.Errorf("image %s (--attest=false leaves this out): %w", program.Name, err)
		}
	}
	return report(out, reference, index)
}

// Values of --kmod.
const (
	kmodAuto    = "auto"
	kmodRequire = "require"
	kmodOmit    = "omit"
)

// fetchKmod fetches kmod for each processor. done removes it.
func (o options) fetchKmod(ctx context.Context, out io.Writer, builder *images.Builder) (done func(), err error) {
	dir, err := os.MkdirTemp("", "drover-images-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for kmod: %w", err)
	}
	builder.Kmod = map[string]string{}
	for arch := range strings.SplitSeq(o.arch, ",") {
		into := filepath.Join(dir, arch)
		err := images.FetchKmod(ctx, into, arch)
		if err != nil && o.kmod == kmodRequire {
			return nil, errors.Join(fmt.Errorf("kmod for %s: %w", arch, err), os.RemoveAll(dir))
		}
		if err != nil {
			fmt.Fprintf(out, "NOTE: the agent's image for %s is made without modprobe: %v. Modules with modprobe.args or modprobe.rawArgs will "+
				"answer ModprobeUnsupported.\n", arch, err)
			continue
		}
		builder.Kmod[arch] = into
	}
	return func() { _ = os.RemoveAll(dir) }, nil
}

// pinKmod writes the lock file anew.
func (o options) pinKmod(ctx context.Context) error {
	text, err := images.Pin(ctx, time.Now(), strings.Split(o.arch, ",")...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.repository, images.LockFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	return nil
}

// saveTarballs writes one file per processor: the format holds no index.
func (o options) saveTarballs(out io.Writer, program images.Program, byArch map[string]v1.Image) error {
	if err := os.MkdirAll(o.tarballDir, 0o755); err != nil {
		return fmt.Errorf("make the folder of tarballs: %w", err)
	}
	for _, arch := range slices.Sorted(maps.Keys(byArch)) {
		file := filepath.Join(o.tarballDir, program.Name+"-"+arch+".tar")
		if err := images.SaveTarball(file, o.reference(program), byArch[arch]); err != nil {
			return fmt.Errorf("image %s for %s: %w", program.Name, arch, err)
		}
		if err := report(out, file, byArch[arch]); err != nil {
			return err
		}
	}
	return nil
}

func (o options) reference(program images.Program) string {
	if o.image != "" {
		return o.image
	}
	return o.name(program.Name) + ":" + o.imageTag()
}

// imageTag is the tag of every image.
func (o options) imageTag() string {
	if given, err := name.NewTag(o.image); err == nil {
		return given.TagStr()
	}
	return cmp.Or(o.tag, images.Tag(o.version))
}

// name of an image with its registry.
func (o options) name(program string) string {
	switch only := o.only != "" && !strings.Contains(o.only, ","); {
	case o.tagBase == "":
		return path.Join(cmp.Or(o.push, localPrefix), program)
	case only || program == mainImage:
		return o.tagBase
	default:
		return path.Join(path.Dir(o.tagBase), program)
	}
}

// report prints where an image went and its digest.
func report(out io.Writer, place string, image interface {
	remote.Taggable
	Digest() (v1.Hash, error)
},
) error {
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("digest of %s: %w", place, err)
	}
	fmt.Fprintln(out, place, digest)
	return nil
}
