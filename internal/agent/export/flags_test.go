// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
)

// parse reads a carrier's arguments, without the command's name.
func parse(args []string) (export.Options, error) {
	var o export.Options
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func TestParse(t *testing.T) {
	got, err := parse([]string{"--kernel", kernel, "--dir-name", "/opt", "--module", "top", "--load-order", "top,below", "--from",
		"/image", "--to", "/out"})
	want := export.Options{
		Kernel: kernel, DirName: "/opt", Module: "top", LoadOrder: []string{"top", "below"}, From: "/image", To: "/out",
		MaxBytes: manifest.DefaultMaxBytes, MaxFiles: manifest.MaxFiles,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, args := range [][]string{nil, {"--kernel", "k"}, {"--module", "m"}, {"--kernel", "k", "--module", "m", "--max-size", "-1"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
