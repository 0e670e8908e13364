// SPDX-License-Identifier: Apache-2.0

// Package bake is `drover bake`: kernel modules in a node's image before it boots.
package bake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/bake"
	"github.com/drover-project/drover/internal/cli/modulefile"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/shared/words"
)

const mostNamed = 10

type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags

	format         output.Format
	file           string
	image          string
	modprobe       v1beta1.ModprobeSpec
	kernels        []string
	arch, from     string
	root, stateDir string
}

// NewCommand makes the command. It needs no cluster and no time.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, flags: flags}
	cmd := &cobra.Command{
		Use:   "bake {-f FILE | --image IMAGE --module NAME} --root FOLDER [--kernel VERSION]",
		Short: "Put kernel modules into a node's image, to be loaded at its first boot without a delivery",
		Long: "Reads the images that Modules name for a kernel, and puts what a node needs of them into the store of the node's agent, in " +
			"the root\n" +
			"file system of a node's image: mounted, or a folder that an image is made of. A node that boots from it loads as soon as it gets " +
			"an order\n" +
			"for exactly this delivery. Any other order goes the usual way. Run it as root, for the files must be root's. Asks no cluster.\n" +
			"The label that it prints, in the kubelet's --node-labels, spares the node a carrier.\n\n" +
			"Images are read with the credentials of docker or podman, or by --from: another reference, an OCI layout folder, an archive " +
			"of\n`docker save`, or a folder with the image's content.\n\n" +
			"Exit codes: 0 all is baked, 2 something is not; what is baked by then stays.",
		Example: "  drover bake -f module.yaml --root /mnt/image\n" +
			"  drover bake -f module.yaml --kernel 6.1.0-44-amd64 --arch arm64 --root /mnt/image\n" +
			"  drover bake --image registry.example.com/nic@sha256:… --module nic --kernel 6.1.0-44-amd64 --root /mnt/image",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modules, err := o.complete()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), modules)
		},
	}
	o.format.AddFlag(cmd, false)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "File with Modules; - is standard input. Other objects are skipped")
	flags.StringVar(&o.image, "image", "", "Image instead of a file, exactly as the Module will name it")
	flags.StringVar(&o.modprobe.ModuleName, "module", "", "Same as modprobe.moduleName, with --image")
	flags.StringSliceVar(&o.modprobe.ModulesLoadingOrder, "load-order", nil, "Same as modprobe.modulesLoadingOrder, with --image")
	flags.StringVar(&o.modprobe.DirName, "dir-name", "/opt", "Same as modprobe.dirName, with --image")
	flags.StringVar(&o.modprobe.FirmwarePath, "firmware-path", "", "Same as modprobe.firmwarePath, with --image")
	flags.StringSliceVar(&o.kernels, "kernel", nil, "Kernel `VERSIONS`, as uname -r prints them (default: those in the root's lib/modules)")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "Processor of the nodes, for example arm64")
	flags.StringVar(&o.from, "from", "", "Read the image from here: a reference, an OCI layout, an archive or a folder")
	flags.StringVar(&o.root, "root", "", "Root file system of the node's image")
	flags.StringVar(&o.stateDir, "state-dir", bake.StateDir, "The agent's state directory on nodes, as the chart's stateDir")
	for _, name := range []string{"image", "module", "load-order", "dir-name", "firmware-path"} {
		cmd.MarkFlagsMutuallyExclusive("filename", name) // the Module has its own setting
	}
}

// complete checks the flags and reads the Modules.
func (o *options) complete() ([]*v1beta1.Module, error) {
	switch {
	case (o.image == "") == (o.file == ""):
		return nil, errors.New("give either --image or, with -f, a file with Modules")
	case o.root == "":
		return nil, errors.New("--root is missing: the folder where the node image's root file system is")
	case o.file == "" && o.modprobe.ModuleName == "":
		return nil, errors.New("--module is missing: the kernel module to load of the image")
	case o.file == "":
		return []*v1beta1.Module{o.module()}, nil
	}
	modules, err := modulefile.Read(o.file, o.In)
	if err != nil {
		return nil, err
	}
	var loading []*v1beta1.Module
	for _, m := range modules {
		if m.Spec.ModuleLoader == nil {
			_, _ = fmt.Fprintf(o.ErrOut, "Module %s loads nothing: skipped.\n", m.Name)
			continue
		}
		m.Namespace = cmp.Or(m.Namespace, *o.flags.Namespace, metav1.NamespaceDefault)
		loading = append(loading, m)
	}
	if o.from != "" && len(loading) > 1 {
		return nil, fmt.Errorf("--from is one image, and %s has %d Modules", o.file, len(loading))
	}
	return loading, nil
}

// module is one that loads --image on any kernel.
func (o *options) module() *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(*o.flags.Namespace, metav1.NamespaceDefault), Name: o.modprobe.ModuleName},
		Spec: v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe: o.modprobe, KernelMappings: []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: o.image}},
		}}},
	}
}

// run bakes and prints.
func (o *options) run(ctx context.Context, modules []*v1beta1.Module) (err error) {
	root, err := bake.Open(ctx, o.root, o.stateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if uid := os.Geteuid(); uid != 0 {
		_, _ = fmt.Fprintf(o.ErrOut, "You are user %d, and so are the files: an agent trusts them only if the image has them as root's.\n", uid)
	}
	kernels, err := o.choose(root)
	if err != nil {
		return err
	}
	var all []*bake.Baked
	for _, m := range modules {
		for _, kernel := range kernels {
			b, err := root.Bake(ctx, bake.Request{Module: m, Kernel: kernel, Arch: o.arch, From: o.from})
			if err != nil {
				return err
			}
			all = append(all, b)
		}
	}
	return o.format.Print(o.Out, all, func(out io.Writer) { _, _ = fmt.Fprint(out, render(root.Store, all)) })
}

// choose are the kernels to bake for. One that the image lacks is doubtful, and no error: it may
// come later.
func (o *options) choose(root *bake.Root) ([]string, error) {
	present, err := root.Kernels()
	if err != nil {
		return nil, err
	}
	if len(o.kernels) == 0 && len(present) == 0 {
		return nil, fmt.Errorf("%s has no kernel below lib/modules: give --kernel", o.root)
	}
	for _, kernel := range o.kernels {
		if !slices.Contains(present, kernel) {
			_, _ = fmt.Fprintf(o.ErrOut, "Kernel %s is not in the node image, which has %s.\n", kernel,
				cmp.Or(words.List(present, mostNamed), "none"))
		}
	}
	if len(o.kernels) == 0 {
		return present, nil
	}
	return o.kernels, nil
}

func render(store string, all []*bake.Baked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Baked into %s: %s.\n", store, words.Count(len(all), "image"))
	for _, one := range all {
		fmt.Fprintf(&b, "\nModule %s, kernel %s\n", one.Module, one.Kernel)
		fmt.Fprintf(&b, "  image     %s\n", one.Image)
		if one.ImageDigest != "" {
			fmt.Fprintf(&b, "  digest    %s\n", one.ImageDigest)
		}
		fmt.Fprintf(&b, "  delivery  %s\n  content   sha256:%s, %s, %d bytes\n", one.Delivery, one.Tree,
			words.Count(one.Files, "file"), one.Bytes)
		fmt.Fprintf(&b, "  label     %s=\n", one.NodeLabel)
		if one.ByTag {
			b.WriteString("  by tag:   nodes use this content for that tag, whatever it names later. A digest in its place rules that out.\n")
		}
	}
	return b.String()
}
