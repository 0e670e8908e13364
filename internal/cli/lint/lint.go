// SPDX-License-Identifier: Apache-2.0

// Package lint is `drover lint`: whether the modules of an image fit a kernel, without loading
// them.
package lint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/build/fit"
	"github.com/drover-project/drover/internal/build/variants"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod"
)

type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags

	format   output.Format
	image    string
	file     string
	kernel   string
	platform string
	symvers  string
	tree     string
	policies bool
	wish     fit.Wish
}

// Report is what was found about an image.
type Report struct {
	// Module and Mapping that name the image, if a file of Modules is checked.
	Module  string `json:"module,omitempty"`
	Mapping *int   `json:"mapping,omitempty"`
	Image   string `json:"image,omitempty"`
	Kernel  string `json:"kernel"`
	// Nodes of the cluster with the kernel, if no --kernel was given.
	Nodes []string `json:"nodes,omitempty"`
	// Findings about the image as a whole.
	Findings []fit.Finding `json:"findings,omitempty"`
	// Platforms in the image's order.
	Platforms []Platform `json:"platforms,omitempty"`
}

// Platform is what was found in the image of one platform.
type Platform struct {
	Platform string        `json:"platform"`
	Findings []fit.Finding `json:"findings"`
}

// NewCommand makes the command. It needs no time, and no cluster but for the kernels of its nodes.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, flags: flags}
	cmd := &cobra.Command{
		Use:   "lint {IMAGE --kernel VERSION | -f FILE [--kernel VERSION] | --policies}",
		Short: "Say whether the modules of an image fit a kernel, without loading them",
		Long: "Checks the modules of an image against one kernel: vermagic, symbols, dependencies, firmware and signature, as the agent " +
			"does before a\n" +
			"load. IMAGE is a reference in a registry (with the credentials of docker or podman), an OCI layout folder, an archive of " +
			"`docker save`,\n" +
			"or a folder with the image's content. No cluster is needed. The output names the checks that need more facts.\n\n" +
			"With -f, it checks the images that the Modules of a file name for a kernel, with their own modprobe settings; without " +
			"--kernel, for the\n" +
			"kernels of all nodes that they select.\n\n" +
			"With --policies, it says what the cluster's ModulePolicies do not allow its Modules (with -n: those of one namespace), which they " +
			"lose\nwhere it is new: on new nodes, and when they are changed.\n\n" +
			"Exit codes: 0 no check failed, 1 a check failed or an enforced policy denies something, 2 the image or the cluster could not be " +
			"read.",
		Example: "  drover lint registry.example.com/nic:6.1.0-44-amd64 --kernel 6.1.0-44-amd64\n" +
			"  drover lint ./out --kernel $(uname -r) --symvers /lib/modules/$(uname -r)/build/Module.symvers --kernel-tree " +
			"/lib/modules/$(uname -r)\n" +
			"  drover lint -f module.yaml\n  drover lint --policies",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.image = args[0]
			}
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "File with Modules instead of IMAGE; - is standard input. Other objects are skipped")
	flags.StringVar(&o.kernel, "kernel", "", "Kernel `VERSION`, as uname -r prints it")
	flags.StringVar(&o.platform, "platform", "", "Check only this platform, for example linux/arm64 (default: all of the image)")
	flags.StringVar(&o.symvers, "symvers", "", "The kernel's Module.symvers or System.map, to check symbols")
	flags.StringVar(&o.tree, "kernel-tree", "", "The kernel's own lib/modules/VERSION folder, to check dependencies and vermagic")
	flags.StringSliceVar(&o.wish.Modules, "module", nil, "Check only these modules and what they need (default: all of the image)")
	flags.StringSliceVar(&o.wish.Loading, "load-order", nil, "Same as modprobe.modulesLoadingOrder")
	flags.StringVar(&o.wish.Dir, "dir-name", "/opt", "Same as modprobe.dirName")
	flags.StringVar(&o.wish.Firmware, "firmware-path", "", "Same as modprobe.firmwarePath")
	flags.BoolVar(&o.policies, "policies", false, "Say what the cluster's ModulePolicies do not allow its Modules")
	for _, name := range []string{"module", "load-order", "dir-name", "firmware-path"} {
		cmd.MarkFlagsMutuallyExclusive("filename", name) // the Module has its own setting
	}
}

// complete checks the flags and reads what is known of the kernel.
func (o *options) complete() error {
	if o.policies {
		if o.image != "" || o.file != "" || o.kernel != "" {
			return errors.New("--policies looks at the cluster's Modules: give no IMAGE, -f or --kernel with it")
		}
		return nil
	}
	if (o.image == "") == (o.file == "") {
		return errors.New("give either an IMAGE or, with -f, a file with Modules")
	}
	if o.kernel == "" && o.file != "" {
		if o.symvers != "" || o.tree != "" || o.platform != "" {
			return errors.New("--symvers, --kernel-tree and --platform need one kernel: --kernel is missing")
		}
		return nil
	}
	if o.kernel == "" {
		return errors.New("--kernel is missing: give what `uname -r` prints")
	}
	if err := kernel.CheckVersion(o.kernel); err != nil {
		return fmt.Errorf("--kernel: %w", err)
	}
	o.wish.Kernel = o.kernel
	if o.symvers != "" {
		file, err := os.Open(o.symvers)
		if err != nil {
			return fmt.Errorf("open the kernel's symbols: %w", err)
		}
		defer func() { _ = file.Close() }()
		if o.wish.Symbols, err = parseSymbols(file); err != nil {
			return err
		}
	}
	if o.tree != "" {
		var err error
		if o.wish.Host, err = kmod.NewIndexedTree(os.DirFS(o.tree)); err != nil {
			return fmt.Errorf("read the kernel's own modules: %w", err)
		}
	}
	return nil
}

// run reads, examines and prints.
func (o *options) run(ctx context.Context) error {
	if o.policies {
		return o.againstPolicies(ctx)
	}
	if o.file != "" {
		return o.runFile(ctx)
	}
	report := Report{Image: o.image, Kernel: o.kernel}
	if err := report.fill(ctx, o.platform, o.wish); err != nil {
		return err
	}
	return o.format.Answer(o.Out, report, report.render(paint.For(o.Out)), report.worst() == nil)
}

func (r *Report) fill(ctx context.Context, platform string, w fit.Wish) error {
	found, err := variants.Open(ctx, r.Image, platform)
	if err != nil {
		return err
	}
	for _, v := range found {
		findings, err := look(ctx, v, w)
		if err != nil {
			return err
		}
		r.Platforms = append(r.Platforms, Platform{Platform: v.Platform, Findings: findings})
	}
	return nil
}

func look(ctx context.Context, v variants.Variant, w fit.Wish) (_ []fit.Finding, err error) {
	w.Machine = v.Machine
	if v.Image != nil {
		return fit.Look(ctx, v.Image, w)
	}
	root, err := os.OpenRoot(v.Folder)
	if err != nil {
		return nil, fmt.Errorf("open the image's content: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fit.Examine(root.FS(), w)
}

// all are the findings about the image as a whole, then by platform.
func (r *Report) all() []fit.Finding {
	all := slices.Clone(r.Findings)
	for _, platform := range r.Platforms {
		all = append(all, platform.Findings...)
	}
	return all
}

func (r *Report) worst() *fit.Finding {
	all := r.all()
	if i := slices.IndexFunc(all, func(f fit.Finding) bool { return f.State == fit.Failed }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (r *Report) unchecked() string {
	n := len(slices.DeleteFunc(r.all(), func(f fit.Finding) bool { return f.State != fit.Unchecked }))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d checks need more facts, see below", n)
}

func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	if f := r.worst(); f != nil {
		what := "The image does not fit kernel " + r.Kernel
		if f.Check == checkMapping {
			what = "There is no image for kernel " + r.Kernel
		}
		if f.Module != "" {
			what = "Module " + f.Module + " of the image does not fit kernel " + r.Kernel
		}
		b.WriteString(p.Strong(what+": "+f.Reason+".") + "\n")
		if step := f.Next(); step != "" {
			b.WriteString("Next step: " + step + "\n")
		}
	} else {
		b.WriteString(p.Strong("No check failed for kernel "+r.Kernel+r.unchecked()+".") + "\n")
	}
	if len(r.Findings) > 0 {
		b.WriteString("\n")
		tell(&b, p, r.Findings)
	}
	for _, platform := range r.Platforms {
		b.WriteString("\n" + platform.Platform + "\n")
		tell(&b, p, platform.Findings)
	}
	return b.String()
}

func tell(b *strings.Builder, p paint.Painter, findings []fit.Finding) {
	for _, f := range findings {
		text := f.Text
		if f.Reason != "" {
			text = f.Reason + ": " + text
		}
		fmt.Fprintf(b, "  %s  %-14s  %-12s  %s\n", mark(p, f.State), f.Module, f.Check, text)
	}
}

func mark(p paint.Painter, s fit.State) string {
	switch s {
	case fit.OK:
		return p.Good("ok       ")
	case fit.Failed:
		return p.Bad("FAILED   ")
	case fit.Unchecked:
	}
	return p.Slow("unchecked")
}
