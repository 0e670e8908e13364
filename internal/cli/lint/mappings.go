// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/fit"
	"github.com/drover-project/drover/internal/build/variants"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/modulefile"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/words"
)

// mostNamed is how many nodes a line names.
const mostNamed = 5

// Checks of an image as a whole.
const (
	checkMapping = "mapping"
	checkImage   = "image"
)

// Reports are what was found about the images that Modules name.
type Reports struct {
	Reports []Report `json:"reports"`
}

// target is a kernel that a Module must fit, and the nodes that run it.
type target struct {
	kernel, platform string
	nodes            []string
}

func (o *options) runFile(ctx context.Context) error {
	modules, err := modulefile.Read(o.file, o.In)
	if err != nil {
		return err
	}
	var nodes []corev1.Node
	if o.kernel == "" {
		if nodes, err = o.nodes(ctx); err != nil {
			return err
		}
	}
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("find the namespace: %w", err)
	}
	all := Reports{Reports: []Report{}}
	for _, m := range modules {
		m.Namespace = cmp.Or(m.Namespace, namespace)
		reports, err := o.module(ctx, m, nodes)
		if err != nil {
			return err
		}
		all.Reports = append(all.Reports, reports...)
	}
	fits := !slices.ContainsFunc(all.Reports, func(r Report) bool { return r.worst() != nil })
	return o.format.Answer(o.Out, all, all.render(paint.For(o.Out)), fits)
}

func (o *options) nodes(ctx context.Context) (nodes []corev1.Node, err error) {
	client, err := cluster.Connect(o.flags)
	if err == nil {
		nodes, err = client.Nodes(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("without --kernel, drover lint checks the kernels of the cluster's nodes: %w", err)
	}
	return nodes, nil
}

func (o *options) module(ctx context.Context, m *v1beta1.Module, nodes []corev1.Node) ([]Report, error) {
	if m.Spec.ModuleLoader == nil {
		return nil, nil // it loads nothing
	}
	targets := []target{{kernel: o.kernel, platform: o.platform}}
	if o.kernel == "" {
		targets = targetsOf(m, nodes)
	}
	wants := desired.New(m)
	var reports []Report
	for _, t := range targets {
		r := Report{Module: m.Namespace + "/" + m.Name, Kernel: t.kernel, Nodes: t.nodes}
		a := wants.On(t.kernel, strings.TrimPrefix(t.platform, "linux/"))
		if a.State == nil {
			text := fmt.Sprintf("none of the %d kernelMappings matches", len(m.Spec.ModuleLoader.Container.KernelMappings))
			if a.Err != nil {
				text = a.Err.Error()
			}
			r.Findings = []fit.Finding{{Check: checkMapping, State: fit.Failed, Reason: kernel.Reason(a.Err), Text: text}}
			reports = append(reports, r)
			continue
		}
		r.Image, r.Mapping = a.State.Config.ContainerImage, &a.State.Mapping
		if err := r.fill(ctx, t.platform, o.wishOf(&a.State.Config, t.kernel)); err != nil {
			finding, known := about(m, a.State, err)
			if !known {
				return nil, fmt.Errorf("image %s of Module %s: %w", r.Image, r.Module, err)
			}
			r.Findings = []fit.Finding{finding}
		}
		reports = append(reports, r)
	}
	return reports, nil
}

func targetsOf(m *v1beta1.Module, nodes []corev1.Node) []target {
	var all []target
	for i := range nodes {
		n := &nodes[i]
		if !placement.Eligible(m, n) {
			continue
		}
		p, err := kernel.PlatformOf(&n.Status.NodeInfo)
		t := target{kernel: p.Kernel}
		if err != nil {
			t.kernel = kernel.Show(&n.Status.NodeInfo)
		}
		if p.Architecture != "" {
			t.platform = "linux/" + p.Architecture
		}
		at := slices.IndexFunc(all, func(known target) bool { return known.kernel == t.kernel && known.platform == t.platform })
		if at < 0 {
			at, all = len(all), append(all, t)
		}
		all[at].nodes = append(all[at].nodes, n.Name)
	}
	for _, t := range all {
		slices.Sort(t.nodes)
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.kernel, b.kernel), cmp.Compare(a.platform, b.platform))
	})
	return all
}

// wishOf examines an image on one kernel, under a Module's own settings.
func (o *options) wishOf(c *v1beta1.ModuleConfig, version string) fit.Wish {
	w := fit.WishOf(c)
	w.Kernel = version
	w.Symbols, w.Host = o.wish.Symbols, o.wish.Host
	return w
}

// about is what an unreadable image means for the Module; not known: this computer may be at fault.
func about(m *v1beta1.Module, want *desired.State, err error) (finding fit.Finding, known bool) {
	var answer *transport.Error
	var other *variants.OtherPlatformError
	container := &m.Spec.ModuleLoader.Container
	mapping := &container.KernelMappings[want.Mapping]
	switch made := container.Build != nil || mapping.Build != nil || container.Sign != nil || mapping.Sign != nil; {
	case errors.As(err, &other):
		return fit.Finding{Check: checkImage, State: fit.Failed, Reason: v1beta1.ReasonPullFailed, Text: err.Error()}, true
	case !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound:
		return fit.Finding{}, false
	case made:
		return fit.Finding{Check: checkImage, State: fit.Unchecked, Text: "the registry does not have it yet: the cluster builds or signs it"},
			true
	}
	return fit.Finding{Check: checkImage, State: fit.Failed, Reason: v1beta1.ReasonImageNotFound, Text: "the registry does not have it"}, true
}

func (r *Reports) render(p paint.Painter) string {
	if len(r.Reports) == 0 {
		return "Nothing to check: the Modules load nothing, or select no node of the cluster.\n"
	}
	var all []string
	for i := range r.Reports {
		one := &r.Reports[i]
		head := "Module " + one.Module + ", kernel " + one.Kernel
		if len(one.Nodes) > 0 {
			head += " of " + words.List(one.Nodes, mostNamed)
		}
		if one.Mapping != nil {
			head += fmt.Sprintf(": %s by kernelMappings[%d]", one.Image, *one.Mapping)
		}
		all = append(all, head+"\n"+one.render(p))
	}
	return strings.Join(all, "\n")
}
