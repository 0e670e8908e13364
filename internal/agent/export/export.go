// SPDX-License-Identifier: Apache-2.0

// Package export runs in a carrier, without privileges and under any user ID: it copies what a node
// needs out of a kmod image, which is mounted read-only and may be hostile, into the carrier's
// output volume, in the format of package manifest.
package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/imagefs"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// defaultDirName is the API's default for dirName.
const defaultDirName = "/opt"

// Options say what is wanted, and from where to where.
type Options struct {
	From, To     string   // the root of the image, and the output directory
	Kernel       string   // the node's kernel version, with or without a trailing "+", as in the image
	DirName      string   // the directory in the image that holds lib/modules ("/opt" as a rule)
	Module       string   // the kernel module to load; only with WholeTree it may be empty
	LoadOrder    []string // further kernel modules to load, which may be the host's
	FirmwarePath string   // the image's directory with firmware; empty when there is none
	WholeTree    bool     // all of the kernel's directory, not only what Module and LoadOrder need
	MaxBytes     int64    // of the output; 0 means the default of package manifest
	MaxFiles     int      // in the output; 0 means the default of package manifest
}

// AddFlags binds the options to the flags that the operator writes into a carrier.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kernel, "kernel", "", "kernel version of the node")
	flags.StringVar(&o.DirName, "dir-name", defaultDirName, "directory in the image that holds lib/modules")
	flags.StringVar(&o.Module, "module", "", "kernel module to load")
	flags.StringSliceVar(&o.LoadOrder, "load-order", nil, "kernel modules from the topmost to the deepest, each of which needs the next")
	flags.StringVar(&o.FirmwarePath, "firmware-path", "", "directory in the image with firmware")
	flags.BoolVar(&o.WholeTree, "whole-tree", false, "copy the kernel's whole directory, not only what the module needs")
	flags.StringVar(&o.From, "from", "/image", "root of the image")
	flags.StringVar(&o.To, "to", "/out", "output directory")
	flags.Int64Var(&o.MaxBytes, "max-size", manifest.DefaultMaxBytes, "most bytes of all files together")
	flags.IntVar(&o.MaxFiles, "max-files", manifest.MaxFiles, "most files")
}

// Validate finds options that no image could satisfy.
func (o *Options) Validate() error {
	switch {
	case o.Kernel == "":
		return errors.New("--kernel is required")
	case kernel.CheckVersion(o.Kernel) != nil:
		return fmt.Errorf("--kernel: %w", kernel.CheckVersion(o.Kernel))
	case o.Module == "" && !o.WholeTree:
		return errors.New("--module is required without --whole-tree")
	case o.From == "" || o.To == "":
		return errors.New("--from and --to are required")
	case o.MaxBytes < 0 || o.MaxFiles < 0:
		return errors.New("--max-size and --max-files must not be negative")
	}
	return nil
}

// Run writes the tree and then the manifest, or error.json if the image is not as it must be. Both
// return nil. An error means that the output could not be written; trying again may help. A
// complete output is left as it is.
func Run(ctx context.Context, o Options) error {
	o.MaxBytes = cmp.Or(o.MaxBytes, manifest.DefaultMaxBytes)
	o.MaxFiles = cmp.Or(o.MaxFiles, manifest.MaxFiles)
	o.DirName = cmp.Or(o.DirName, defaultDirName)
	out, err := os.OpenRoot(o.To)
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer func() { _ = out.Close() }()
	if _, err := out.Lstat(manifest.File); err == nil {
		return nil
	}
	// What an earlier run of this container left unfinished goes.
	if err := errors.Join(out.RemoveAll(manifest.ErrorFile), out.RemoveAll(manifest.TreeDir)); err != nil {
		return fmt.Errorf("clear output: %w", err)
	}
	m, err := export(ctx, o, out)
	if failure, ok := errors.AsType[*manifest.Failure](err); ok {
		klog.FromContext(ctx).Info("Export is impossible", "reason", failure.Reason, "message", failure.Message)
		return errors.Join(out.RemoveAll(manifest.TreeDir), publish(out, manifest.ErrorFile, failure))
	}
	if err != nil {
		return err
	}
	return publish(out, manifest.File, m)
}

// export copies the files and returns their list, or a *manifest.Failure.
func export(ctx context.Context, o Options, out *os.Root) (manifest.Manifest, error) {
	img, err := openImage(o.From)
	if err != nil {
		return manifest.Manifest{}, err
	}
	defer func() { _ = img.root.Close() }()
	files, err := choose(ctx, img, o)
	if err != nil {
		return manifest.Manifest{}, err
	}
	c := copier{image: img, out: out, left: o.MaxBytes, max: o.MaxBytes}
	m := manifest.Manifest{Schema: manifest.Schema, Kernel: o.Kernel, Files: make([]manifest.Entry, 0, len(files))}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return manifest.Manifest{}, fmt.Errorf("export: %w", err)
		}
		e, err := c.copy(f)
		if err != nil {
			return manifest.Manifest{}, err
		}
		m.Files = append(m.Files, e)
	}
	klog.FromContext(ctx).Info("Export is complete", "files", len(m.Files), "bytes", o.MaxBytes-c.left)
	return m, nil
}

type file struct {
	from, to string // the path in the image, and in the tree
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

// publish writes v as JSON under a temporary name and renames it into place.
func publish(out *os.Root, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	tmp := "." + name
	if err := out.RemoveAll(tmp); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := create(out, tmp)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := out.Rename(tmp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// create makes a file that the agent, which obeys permission bits, can read whatever the umask.
func create(out *os.Root, name string) (*os.File, error) {
	f, err := out.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := f.Chmod(0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("create: %w", err), f.Close())
	}
	return f, nil
}

func unreadable(name string, err error) error {
	var failure *manifest.Failure
	var link *imagefs.LinkError
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &link):
		return manifest.Failed(manifest.ReasonImageUnreadable, "%v", link)
	case errors.Is(err, fs.ErrPermission):
		return manifest.Failed(manifest.ReasonImageUnreadable,
			"/%s may not be read by user %d: make it readable for everybody in the image", name, os.Getuid())
	default:
		return manifest.Failed(manifest.ReasonImageUnreadable, "/%s: %v", name, err)
	}
}
