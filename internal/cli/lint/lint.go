// SPDX-License-Identifier: Apache-2.0

// Package lint is `drover lint`: whether the modules of an image fit a kernel, without loading them and without a cluster.
package lint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/kmod"
)

// Options of the command.
type Options struct {
	genericiooptions.IOStreams

	format   output.Format
	image    string
	kernel   string
	platform string
	symvers  string
	tree     string
	wish     wish
}

// Report is what was found in an image.
type Report struct {
	Image  string `json:"image"`
	Kernel string `json:"kernel"`
	// Platforms in the image's order.
	Platforms []Platform `json:"platforms"`
}

// Platform is what was found in the image of one platform.
type Platform struct {
	Platform string    `json:"platform"`
	Findings []Finding `json:"findings"`
}

// NewCommand makes the command. It needs no cluster and no time.
func NewCommand(_ *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "lint IMAGE --kernel VERSION",
		Short: "Say whether the modules of an image fit a kernel, without loading them",
		Long: "Looks at the modules of an image for one kernel: vermagic, symbols, dependencies, firmware and signature, by the checks that the agent makes before\n" +
			"a load. IMAGE is a reference in a registry (with the credentials of docker or podman), an OCI layout folder, an archive as `docker save`\n" +
			"writes it, or a folder that holds what the image would. No cluster is needed. What cannot be checked without more facts is said.\n\n" +
			"Ends with 0 when nothing speaks against loading, with 1 when something does, and with 2 when the image could not be read.",
		Example: "  drover lint registry.example.com/nic:6.1.0-44-amd64 --kernel 6.1.0-44-amd64\n" +
			"  drover lint ./out --kernel $(uname -r) --symvers /lib/modules/$(uname -r)/build/Module.symvers --kernel-tree /lib/modules/$(uname -r)",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	flags := cmd.Flags()
	flags.StringVar(&o.kernel, "kernel", "", "Kernel version, as `uname -r` prints it")
	flags.StringVar(&o.platform, "platform", "", "Only this platform, for example linux/arm64; all of the image otherwise")
	flags.StringVar(&o.symvers, "symvers", "", "The kernel's Module.symvers or System.map, to check symbols")
	flags.StringVar(&o.tree, "kernel-tree", "", "The kernel's own lib/modules/VERSION folder, to check dependencies and vermagic")
	flags.StringSliceVar(&o.wish.modules, "module", nil, "Only these modules and what they need; all of the image otherwise")
	flags.StringSliceVar(&o.wish.loading, "load-order", nil, "As modprobe.modulesLoadingOrder")
	flags.StringVar(&o.wish.dir, "dir-name", "/opt", "As modprobe.dirName")
	flags.StringVar(&o.wish.firmware, "firmware-path", "", "As modprobe.firmwarePath")
	return cmd
}

// Complete checks the flags and reads what is known of the kernel.
func (o *Options) Complete(args []string) error {
	o.image = args[0]
	o.kernel = strings.TrimSuffix(o.kernel, "+")
	if o.kernel == "" || strings.ContainsAny(o.kernel, "/\\") || o.kernel == ".." {
		return errors.New("--kernel is missing, or is no kernel version: for which kernel?")
	}
	if err := o.format.Check(); err != nil {
		return err
	}
	o.wish.kernel = o.kernel
	if o.symvers != "" {
		file, err := os.Open(o.symvers)
		if err != nil {
			return fmt.Errorf("open the kernel's symbols: %w", err)
		}
		defer func() { _ = file.Close() }()
		if o.wish.symbols, err = parseSymbols(file); err != nil {
			return err
		}
	}
	if o.tree != "" {
		var err error
		if o.wish.host, err = kmod.NewIndexedTree(os.DirFS(o.tree)); err != nil {
			return fmt.Errorf("read the kernel's own modules: %w", err)
		}
	}
	return nil
}

// Run reads, examines and prints.
func (o *Options) Run(ctx context.Context) error {
	variants, err := open(ctx, o.image, o.platform)
	if err != nil {
		return err
	}
	report := Report{Image: o.image, Kernel: o.kernel}
	for _, v := range variants {
		findings, err := o.look(v)
		if err != nil {
			return err
		}
		report.Platforms = append(report.Platforms, Platform{Platform: v.platform, Findings: findings})
	}
	if err := o.format.Print(o.Out, report, func(out io.Writer) { _, _ = fmt.Fprint(out, report.render(paint.For(o.Out))) }); err != nil {
		return err
	}
	if report.worst() != nil {
		return exit.ErrNotReady
	}
	return nil
}

// look examines the image of one platform.
func (o *Options) look(v variant) (_ []Finding, err error) {
	w := o.wish
	w.machine = v.machine
	folder := v.folder
	if folder == "" {
		if folder, err = os.MkdirTemp("", "drover-lint-"); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the image's content: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if v.image != nil {
		if err := unpack(v.image, root, w.firmware); err != nil {
			return nil, err
		}
	}
	return examine(root.FS(), w)
}

// worst is the first finding that speaks against loading, or nil.
func (r *Report) worst() *Finding {
	for i := range r.Platforms {
		for j := range r.Platforms[i].Findings {
			if f := &r.Platforms[i].Findings[j]; f.State == Failed {
				return f
			}
		}
	}
	return nil
}

// unchecked counts what could not be looked at.
func (r *Report) unchecked() string {
	n := 0
	for _, platform := range r.Platforms {
		for _, f := range platform.Findings {
			if f.State == Unchecked {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d checks need more facts, see below", n)
}

func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	if f := r.worst(); f != nil {
		what := "The image does not fit kernel " + r.Kernel
		if f.Module != "" {
			what = "Module " + f.Module + " of the image does not fit kernel " + r.Kernel
		}
		b.WriteString(p.Strong(what+": "+f.Reason+".") + "\n")
		if step := next(*f); step != "" {
			b.WriteString("Next step: " + step + "\n")
		}
	} else {
		b.WriteString(p.Strong("Nothing found speaks against loading on kernel "+r.Kernel+r.unchecked()+".") + "\n")
	}
	for _, platform := range r.Platforms {
		b.WriteString("\n" + platform.Platform + "\n")
		for _, f := range platform.Findings {
			text := f.Text
			if f.Reason != "" {
				text = f.Reason + ": " + text
			}
			fmt.Fprintf(&b, "  %s  %-14s  %-12s  %s\n", mark(p, f.State), f.Module, f.Check, text)
		}
	}
	return b.String()
}

func mark(p paint.Painter, s State) string {
	switch s {
	case OK:
		return p.Good("ok       ")
	case Failed:
		return p.Bad("FAILED   ")
	case Unchecked:
	}
	return p.Slow("unchecked")
}
