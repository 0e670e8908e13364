// SPDX-License-Identifier: Apache-2.0

// Package images is `drover images`: every image that an installation needs, for mirroring.
package images

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/shared/version"
)

// Parts of an installation, as the chart's switches name them.
const (
	partCluster      = "cluster"
	partBuild        = "build"
	partHub          = "hub"
	partDeviceConfig = "operators.deviceconfig"
	partPtemplate    = "operators.ptemplate"
	partLolcow       = "operators.lolcow"
)

// All are the images of this version. A test compares them with config/ and with the chart's
// values.
var All = []Image{
	{
		Repository: "drover/drover-operator", Parts: []string{partCluster, partHub},
		Purpose:   "the operator, also as a hub; Jobs that examine images run it, too",
		workloads: []string{"drover-operator", "drover-hub", "drover-release"},
	},
	{
		Repository: "drover/drover-agent", Parts: []string{partCluster},
		Purpose:   "the agent, with drover-kcall; carriers, and the init containers of device plugins, run it too",
		workloads: []string{"drover-agent", "drover-boot"},
	},
	{Repository: "drover/drover-signer", Parts: []string{partBuild, partHub}, Purpose: "the steps of Jobs that build and sign"},
	{Repository: "drover/deviceconfig-operator", Parts: []string{partDeviceConfig}, Purpose: "the DeviceConfig operator",
		workloads: []string{"deviceconfig-operator"}},
	{Repository: "drover/ptemplate-operator", Parts: []string{partPtemplate}, Purpose: "the Ptemplate operator",
		workloads: []string{"ptemplate-operator"}},
	{Repository: "drover/lolcow-operator", Parts: []string{partLolcow}, Purpose: "the LolCow operator",
		workloads: []string{"lolcow-operator"}},
}

// Image is one of them.
type Image struct {
	// Image is its whole reference; Repository is its name without registry and tag.
	Image      string   `json:"image"`
	Repository string   `json:"repository"`
	Parts      []string `json:"parts"`
	Purpose    string   `json:"purpose"`
	// workloads are the names of what runs it, but for pods that are made for Modules.
	workloads []string
}

// Workloads are the names of Drover's own Deployments, DaemonSets, Jobs and static pods, which are
// also the values of the label app.kubernetes.io/name there.
func Workloads() []string {
	var names []string
	for _, image := range All {
		names = append(names, image.workloads...)
	}
	return names
}

type options struct {
	genericiooptions.IOStreams
	format        output.Format
	registry, tag string
	buildah       string
	parts         []string
}

// NewCommand makes the command.
func NewCommand(_ *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Print every image that an installation needs, for mirroring",
		Long: "Print every image that an installation needs, one per line, for mirroring.\n" +
			"Images of your kernel modules, device plugins and toolchains are named by your Modules, and not printed. Asks no cluster.",
		Example: "  drover images\n" +
			"  drover images --only cluster,build --buildah quay.io/buildah/stable@sha256:…\n" +
			"  drover images | while read image; do crane copy \"$image\" \"registry.example.com/mirror/drover/${image##*/}\"; done",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().StringVar(&o.registry, "registry", version.Registry, "Registry before all names, as the chart's images.registry")
	cmd.Flags().StringVar(&o.tag, "tag", "", "Tag of all images; empty: this program's release, or dev")
	cmd.Flags().StringVar(&o.buildah, "buildah", "", "Buildah's image, for builds from Dockerfiles; there is no default")
	cmd.Flags().StringSliceVar(&o.parts, "only", nil, "Only those for some parts: "+strings.Join(parts(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(parts(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// parts are all that an image is for.
func parts() []string {
	var names []string
	for _, image := range All {
		for _, p := range image.Parts {
			if !slices.Contains(names, p) {
				names = append(names, p)
			}
		}
	}
	return names
}

func (o *options) run() error {
	for _, p := range o.parts {
		if !slices.Contains(parts(), p) {
			return fmt.Errorf("unknown part %q: want some of %s", p, strings.Join(parts(), ", "))
		}
	}
	found := o.list()
	return o.format.Print(o.Out, found, func(out io.Writer) {
		for _, image := range found {
			_, _ = fmt.Fprintln(out, image.Image)
		}
	})
}

func (o *options) list() []Image {
	prefix := strings.TrimSuffix(cmp.Or(o.registry, version.Registry), "/") + "/"
	var found []Image
	for _, image := range All {
		if o.wanted(image.Parts) {
			image.Image = prefix + image.Repository + ":" + cmp.Or(o.tag, release(version.Version))
			found = append(found, image)
		}
	}
	if builds := []string{partBuild, partHub}; o.buildah != "" && o.wanted(builds) {
		name, _, _ := strings.Cut(o.buildah, "@")
		found = append(found, Image{Image: o.buildah, Repository: name, Parts: builds, Purpose: "builds from Dockerfiles"})
	}
	return found
}

func (o *options) wanted(of []string) bool {
	return len(o.parts) == 0 || slices.ContainsFunc(of, func(p string) bool { return slices.Contains(o.parts, p) })
}

// released is the version of a release or of a candidate for one; "v1.2.0-3-gabcdef" is none.
var released = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// release is the tag of this program's images. Outside of releases, the Makefile calls it dev.
func release(of string) string {
	if released.MatchString(of) {
		return of
	}
	return "dev"
}
