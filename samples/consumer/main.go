// SPDX-License-Identifier: Apache-2.0

// Command consumer uses the devices that its container was given: it reads each
// one again and again, prints what it read, and may leave a message. It learns of
// its devices by the variables that a device plugin sets, such as
// ptemplate_0=/dev/ptemplate-0. It needs no privilege, no shell, no volume and no
// writable file system.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// limit bounds what is read from one device, bytes: a device need not have an end.
const limit = 4096

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:], os.Environ())
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// run uses the devices until ctx ends. A device that fails ends it with an error:
// the kubelet then starts it again, with its devices made ready anew.
func run(ctx context.Context, out io.Writer, args, environment []string) error {
	flags := flag.NewFlagSet("consumer", flag.ContinueOnError)
	prefix := flags.String("prefix", cmp.Or(os.Getenv("DEVICE_PREFIX"), "ptemplate"), "what the names of the devices' variables begin with "+
		"(DEVICE_PREFIX)")
	message := flags.String("message", os.Getenv("MESSAGE"), "written to each device after the first reading; empty: only read (MESSAGE)")
	interval := flags.Duration("interval", 10*time.Second, "time between readings (INTERVAL)")
	if value := os.Getenv("INTERVAL"); value != "" {
		if err := flags.Set("interval", value); err != nil {
			return fmt.Errorf("variable INTERVAL: %w", err)
		}
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if *interval <= 0 {
		return fmt.Errorf("interval %s is not positive", *interval)
	}
	paths := devices(environment, *prefix)
	if len(paths) == 0 {
		return fmt.Errorf("no variable %s or %s_* names a device: none was allocated", *prefix, *prefix)
	}
	// A device may make a reader wait for as long as it likes. That must not keep
	// the program from ending.
	ended := make(chan error, 1)
	go func() { ended <- rounds(ctx, out, paths, *message, *interval) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// devices are the paths, in order, in the variables of this prefix.
func devices(environment []string, prefix string) []string {
	var paths []string
	for _, variable := range environment {
		name, path, _ := strings.Cut(variable, "=")
		if (name == prefix || strings.HasPrefix(name, prefix+"_")) && filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func rounds(ctx context.Context, out io.Writer, paths []string, message string, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil { // a tick that came with the end is not another round
		for _, path := range paths {
			if err := use(out, path, message); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// use prints what a device holds, quoted, and then leaves a message in it.
func use(out io.Writer, path, message string) error {
	content, err := read(path)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s: %q\n", path, content); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if message == "" {
		return nil
	}
	return write(path, message)
}

func read(path string) (content []byte, err error) {
	device, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open device: %w", err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if content, err = io.ReadAll(io.LimitReader(device, limit)); err != nil {
		return nil, fmt.Errorf("read device: %w", err)
	}
	return content, nil
}

// write gives the device a message by one call: a driver may take each as one.
func write(path, message string) (err error) {
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open device to write: %w", err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if _, err := device.WriteString(message); err != nil {
		return fmt.Errorf("write to device: %w", err)
	}
	return nil
}
