// SPDX-License-Identifier: Apache-2.0

// Command compiled tells with which release of Go programs were compiled, and fails if that is not
// the one that was asked for. A release's workflow runs it on all that it made: which compiler a
// go.mod and a runner agree on is easily another than the one that was meant.
//
//	go run ./hack/compiled --go 1.26.9 bin/drover dist/sbom dist/krew
//
// It reads programs, archives of programs (.tar.gz, .zip), SBOMs of images (.spdx.json), and what
// is in folders.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compiled:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("compiled", flag.ContinueOnError)
	want := flags.String("go", "", "release of Go that all must be compiled with, such as 1.26.9")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *want == "" || flags.NArg() == 0 {
		return errors.New("usage: compiled --go RELEASE FILE…")
	}
	found := map[string]string{}
	for _, name := range flags.Args() {
		if err := filepath.Walk(name, func(file string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			return read(file, found)
		}); err != nil {
			return err
		}
		below := func(program string) bool { return strings.HasPrefix(program, filepath.Clean(name)) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), below) {
			return fmt.Errorf("%s has no program that Go compiled", name)
		}
	}
	return judge(out, strings.TrimPrefix(*want, "go"), found)
}

// judge compares what programs were compiled with.
func judge(out io.Writer, want string, found map[string]string) error {
	var errs []error
	for _, program := range slices.Sorted(maps.Keys(found)) {
		have, _, _ := strings.Cut(strings.TrimPrefix(found[program], "go"), " ")
		if have != want {
			errs = append(errs, fmt.Errorf("%s is compiled with Go %s instead of %s", program, have, want))
		}
	}
	if len(errs) == 0 {
		fmt.Fprintf(out, "%d programs are compiled with Go %s\n", len(found), want)
	}
	return errors.Join(errs...)
}
