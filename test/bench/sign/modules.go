// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

// cost is processor time, and time by the clock.
type cost struct{ used, wall time.Duration }

func (c *cost) add(other cost) { c.used, c.wall = c.used+other.used, c.wall+other.wall }

// share of another's processor time.
func (c cost) share(of cost) float64 { return c.used.Seconds() / of.used.Seconds() }

// bench signs with one key.
type bench struct {
	program          string
	key, certificate string // files
	ourDir, theirDir string
	ourKey           sign.Key
	// rsa is ours without anything but the key's work.
	ours, theirs, rsa cost
	identical         int
	// buffers that modules are read to. A Job has one, in internal/build/repack.
	buffers sync.Pool
}

// newBench makes a key and its certificate as KMM's documentation does.
func newBench(ctx context.Context, work, program string, bits int) (*bench, error) {
	dir, err := os.MkdirTemp(work, "key-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &bench{
		program: program, key: filepath.Join(dir, "key"), certificate: filepath.Join(dir, "cert"),
		ourDir: filepath.Join(dir, "ours"), theirDir: filepath.Join(dir, "theirs"),
	}
	if err := errors.Join(os.Mkdir(b.ourDir, 0o755), os.Mkdir(b.theirDir, 0o755)); err != nil {
		return nil, fmt.Errorf("make folders: %w", err)
	}
	args := strings.Fields(fmt.Sprintf("req -x509 -new -nodes -utf8 -sha256 -days 36500 -batch -subj /CN=bench -newkey rsa:%d -outform DER",
		bits))
	if output, err := exec.CommandContext(ctx, "openssl",
		append(args, "-keyout", b.key, "-out", b.certificate)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a key: %w: %s", err, output)
	}
	key, keyErr := os.ReadFile(b.key)
	certificate, certificateErr := os.ReadFile(b.certificate)
	if err := errors.Join(keyErr, certificateErr); err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	b.ourKey, err = sign.ParseKey(key, certificate)
	return b, err
}

// measure signs all files, in batches by turns, and compares.
func (b *bench) measure(ctx context.Context, files []string) error {
	for len(files) > 0 {
		some := files[:min(batch, len(files))]
		files = files[len(some):]
		for _, file := range some { // into the page cache, for both
			if err := b.with(file, func([]byte) error { return nil }); err != nil {
				return err
			}
		}
		for _, one := range []struct {
			sum *cost
			do  func(context.Context, string) error
		}{{&b.theirs, b.signFile}, {&b.ours, b.sign}, {&b.rsa, b.signDigest}} {
			took, err := each(ctx, some, one.do)
			if err != nil {
				return err
			}
			one.sum.add(took)
		}
		for _, file := range some {
			if err := b.compare(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// each does something to all files with two workers, and says what it took.
func each(ctx context.Context, files []string, do func(context.Context, string) error) (c cost, err error) {
	before, err := processorTime()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, file := range files {
		group.Go(func() error { return do(ctx, file) })
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	c.wall = time.Since(begin)
	after, err := processorTime()
	c.used = after - before
	return c, err
}

// processorTime that this process and its children that ended have used.
func processorTime() (time.Duration, error) {
	var used time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			return 0, fmt.Errorf("look at the processor time: %w", err)
		}
		used += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return used, nil
}

func (b *bench) signFile(ctx context.Context, file string) error {
	command := exec.CommandContext(ctx, b.program, "sha256", b.key, b.certificate, file, filepath.Join(b.theirDir, filepath.Base(file)))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("sign-file %s: %w: %s", file, err, output)
	}
	return nil
}

// signDigest is the key's part of the work alone.
func (b *bench) signDigest(_ context.Context, file string) error {
	digest := sha256.Sum256([]byte(file))
	_, err := b.ourKey.Sign(rand.Reader, digest[:], crypto.SHA256)
	return err
}

func (b *bench) sign(_ context.Context, file string) error {
	var o sign.Options
	if os.Getenv("BREAK") == "hash" && filepath.Base(file) == "veth.ko" {
		o.Hash = crypto.SHA512
	}
	return b.signTo(file, filepath.Join(b.ourDir, filepath.Base(file)), o)
}

// signTo signs from one file to another, as internal/build/repack has it done.
func (b *bench) signTo(file, to string, o sign.Options) (err error) {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = sign.File(file, from, out, b.ourKey, o)
	return err
}

// with a file's content, in a buffer that others get afterwards, so that there is next to no
// garbage to collect while we measure.
func (b *bench) with(file string, do func(content []byte) error) error {
	buffer, ok := b.buffers.Get().(*bytes.Buffer)
	if !ok {
		buffer = new(bytes.Buffer)
	}
	defer b.buffers.Put(buffer)
	if err := readInto(buffer, file); err != nil {
		return fmt.Errorf("read a module: %w", err)
	}
	return do(buffer.Bytes())
}

// readInto reads a module.
func readInto(buffer *bytes.Buffer, file string) (err error) {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	buffer.Reset()
	buffer.Grow(int(info.Size()) + bytes.MinRead)
	_, err = buffer.ReadFrom(from)
	return err
}

// compare counts a module as identical if it is, and makes room for the next ones.
func (b *bench) compare(file string) error {
	ourFile, theirFile := filepath.Join(b.ourDir, filepath.Base(file)), filepath.Join(b.theirDir, filepath.Base(file))
	before, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("look at the module: %w", err)
	}
	err = b.with(ourFile, func(ours []byte) error {
		return b.with(theirFile, func(theirs []byte) error {
			// Longer than it was: equal files that nobody has signed prove nothing.
			if bytes.Equal(ours, theirs) && int64(len(ours)) > before.Size() {
				b.identical++
			} else {
				fmt.Printf("%s differs\n", file)
			}
			return nil
		})
	})
	return errors.Join(err, os.Remove(ourFile), os.Remove(theirFile))
}
