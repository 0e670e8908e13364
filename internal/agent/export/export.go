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
	"io/fs"
	"os"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/manifest"
)

// defaultDirName is the API's default for dirName.
const defaultDirName = "/opt"

// Options say what is wanted, and from where to where.
type Options struct {
	// From is the root of the image, To the output directory.
	From, To string
	// Kernel is the node's kernel version, with or without a trailing "+", as in the image.
	Kernel string
	// DirName is the directory in the image that holds lib/modules ("/opt" as a rule).
	DirName string
	// Module is the kernel module to load. Only with WholeTree it may be empty.
	Module string
	// LoadOrder are further kernel modules to load. They may be the host's.
	LoadOrder []string
	// FirmwarePath is the image's directory with firmware; empty when there is none.
	FirmwarePath string
	// WholeTree copies all of the kernel's directory, not only what Module and LoadOrder need.
	WholeTree bool
	// MaxBytes and MaxFiles bound the output; 0 means the defaults of package manifest.
	MaxBytes int64
	MaxFiles int
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
	if err := clear(out); err != nil {
		return err
	}
	m, err := export(ctx, o, out)
	var failure *manifest.Failure
	if errors.As(err, &failure) {
		klog.FromContext(ctx).Info("Export is impossible", "reason", failure.Reason, "message", failure.Message)
		return errors.Join(out.RemoveAll(manifest.TreeDir), publish(out, manifest.ErrorFile, failure))
	}
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Export is complete", "files", len(m.Files), "bytes", m.Bytes())
	return publish(out, manifest.File, m)
}

// clear removes what an earlier run of this container left unfinished.
func clear(out *os.Root) error {
	for _, name := range []string{manifest.ErrorFile, manifest.TreeDir} {
		if err := out.RemoveAll(name); err != nil {
			return fmt.Errorf("clear output: %w", err)
		}
	}
	return nil
}

// export copies the files and returns their list, or a *manifest.Failure.
func export(ctx context.Context, o Options, out *os.Root) (manifest.Manifest, error) {
	img, err := os.OpenRoot(o.From)
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("open image: %w", err)
	}
	defer func() { _ = img.Close() }()
	files, err := choose(ctx, image{img}, o)
	if err != nil {
		return manifest.Manifest{}, err
	}
	c := copier{image: image{img}, out: out, left: o.MaxBytes, max: o.MaxBytes}
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
	return m, nil
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
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, fs.ErrPermission):
		return manifest.Failed(manifest.ReasonImageUnreadable,
			"/%s may not be read by user %d: make it readable for everybody in the image", name, os.Getuid())
	default:
		return manifest.Failed(manifest.ReasonImageUnreadable, "/%s: %v", name, err)
	}
}
