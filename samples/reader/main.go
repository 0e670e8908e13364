// SPDX-License-Identifier: Apache-2.0

// Command reader prints what device nodes hold: the consumer of the sample
// device plugin. It needs no privilege, no shell and no writable file system.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// limit bounds what is read from one device, bytes: a device need not have an end.
const limit = 64 << 10

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run() error {
	once := flag.Bool("once", false, "end after the first reading")
	hold := flag.Bool("hold", false, "keep the devices open: their kernel module is in use until the end")
	interval := flag.Duration("interval", 10*time.Second, "time between readings")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: reader [--once] [--hold] [--interval 10s] PATTERN...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		return errors.New("name at least one device, or a pattern such as '/dev/drover_sample*'")
	}
	if *interval <= 0 {
		return fmt.Errorf("interval %s is not positive", *interval)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *hold {
		held, err := openAll(flag.Args())
		defer closeAll(held)
		if err != nil {
			return err
		}
	}
	for {
		if err := printAll(os.Stdout, flag.Args()); err != nil || *once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*interval):
		}
	}
}

// devices are the paths that match. A pattern lets a pod read its devices
// without knowing which ones it was given.
func devices(patterns []string) ([]string, error) {
	var devices []string
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("no device matches %q", pattern)
		}
		devices = append(devices, paths...)
	}
	return devices, nil
}

// openAll returns what it has opened, after an error too.
func openAll(patterns []string) ([]*os.File, error) {
	paths, err := devices(patterns)
	if err != nil {
		return nil, err
	}
	var held []*os.File
	for _, path := range paths {
		device, err := os.Open(path)
		if err != nil {
			return held, fmt.Errorf("hold: %w", err)
		}
		held = append(held, device)
	}
	return held, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // only held
	}
}

// printAll copies what every device holds to out.
func printAll(out io.Writer, patterns []string) error {
	paths, err := devices(patterns)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := printDevice(out, path); err != nil {
			return err
		}
	}
	return nil
}

func printDevice(out io.Writer, path string) (err error) {
	device, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open device: %w", err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	content, err := io.ReadAll(io.LimitReader(device, limit))
	if err != nil {
		return fmt.Errorf("read device: %w", err)
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
