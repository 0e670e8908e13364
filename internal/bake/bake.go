// SPDX-License-Identifier: Apache-2.0

package bake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/variants"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
)

// Request is what one Module wants of nodes with one kernel.
type Request struct {
	Module *v1beta1.Module
	// Kernel and Arch are as the node will report them.
	Kernel, Arch string
	// From is where the image is read: a reference, an OCI layout, an archive or a folder. Empty: by
	// the reference that the Module names.
	From string
}

// Baked is a delivery that the node image holds.
type Baked struct {
	Module string `json:"module"`
	Kernel string `json:"kernel"`
	// Image is the reference that an order must name, letter by letter.
	Image string `json:"image"`
	// ImageDigest is that of the image for the processor; empty: it was read from a folder.
	ImageDigest string `json:"imageDigest,omitempty"`
	// ByTag: the reference may name another image by now.
	ByTag bool `json:"byTag"`
	// Delivery is the identity that an order must have.
	Delivery string `json:"delivery"`
	// NodeLabel of a kubelet spares its node a carrier.
	NodeLabel string `json:"nodeLabel"`
	// Tree is the digest of the content, as a node reports it.
	Tree  string `json:"tree"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Bake puts what a Module wants of a kernel into the node image, in place of an older content of
// the same delivery. The result is verified as before each load.
func (r *Root) Bake(ctx context.Context, q Request) (*Baked, error) {
	want, err := wanted(q)
	if err != nil {
		return nil, err
	}
	b := &Baked{
		Module: q.Module.Namespace + "/" + q.Module.Name, Kernel: q.Kernel, Image: want.Config.ContainerImage, Delivery: want.Delivery,
		NodeLabel: v1beta1.BakedLabel(want.Delivery),
	}
	fail := func(err error) (*Baked, error) {
		return nil, fmt.Errorf("bake image %s of Module %s for kernel %s: %w", b.Image, b.Module, q.Kernel, err)
	}
	image, err := b.open(ctx, q)
	if err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp(r.work, "image-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // Close removes what stays
	if image.Image != nil {
		if err := repack.Unpack(ctx, image.Image, dir, repack.DefaultLimits()); err != nil {
			return fail(err)
		}
		image.Folder = dir
	}
	if err := r.take(ctx, image.Folder, want, b); err != nil {
		return fail(err)
	}
	return b, nil
}

// wanted is what the operator will order.
func wanted(q Request) (*desired.State, error) {
	m := q.Module
	if m.Spec.ModuleLoader == nil {
		return nil, fmt.Errorf("the Module %s/%s loads nothing", m.Namespace, m.Name)
	}
	// As the API server stores it: with imagePullPolicy Always, moduleLoader is in the identity.
	m = m.DeepCopy()
	container := &m.Spec.ModuleLoader.Container
	container.Modprobe.DirName = cmp.Or(container.Modprobe.DirName, "/opt")
	answer := desired.New(m).On(q.Kernel, q.Arch)
	if answer.Err != nil {
		return nil, fmt.Errorf("the Module %s/%s: %w", m.Namespace, m.Name, answer.Err)
	}
	if answer.State == nil {
		return nil, fmt.Errorf("no kernel mapping of the Module %s/%s matches kernel %s: nodes with it would load nothing", m.Namespace, m.Name,
			q.Kernel)
	}
	mapping := &container.KernelMappings[answer.State.Mapping]
	if container.Build != nil || mapping.Build != nil || container.Sign != nil || mapping.Sign != nil {
		return nil, fmt.Errorf("the Module %s/%s has the image for kernel %s built or signed in the cluster: its deliveries have an identity "+
			"by inputs that only the cluster knows; name the finished image in a mapping without build and sign", m.Namespace, m.Name, q.Kernel)
	}
	return answer.State, nil
}

// open finds the image for the processor. Only the very image is taken if it is named by digest.
func (b *Baked) open(ctx context.Context, q Request) (variants.Variant, error) {
	var none variants.Variant
	reference, err := name.ParseReference(b.Image)
	if err != nil {
		return none, fmt.Errorf("read the reference: %w", err)
	}
	found, err := variants.Open(ctx, cmp.Or(q.From, b.Image), "linux/"+q.Arch)
	if err != nil {
		return none, err
	}
	image := found[0]
	if image.Image != nil {
		b.ImageDigest = image.Digests[0].String()
	}
	pinned, ok := reference.(name.Digest)
	b.ByTag = !ok
	named := func(h v1.Hash) bool { return h.String() == pinned.DigestStr() }
	if ok && !slices.ContainsFunc(image.Digests, named) {
		return none, fmt.Errorf("%s is another image (%s)", q.From, cmp.Or(b.ImageDigest, "a folder has no digest"))
	}
	return image, nil
}

// take exports as a carrier does, and imports as an agent does.
func (r *Root) take(ctx context.Context, image string, want *desired.State, b *Baked) error {
	carrier := uuid.NewUUID()
	rel, err := store.OutputDir(carrier)
	if err != nil {
		return err
	}
	out := filepath.Join(r.work, filepath.FromSlash(rel))
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make a folder to work in: %w", err)
	}
	var o export.Options
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(append(delivery.ExportArgs(&want.Config), "--from", image, "--to", out)); err != nil {
		return fmt.Errorf("say what to export: %w", err)
	}
	if err := o.Validate(); err != nil {
		return err
	}
	quiet := klog.NewContext(ctx, logr.Discard()) //nolint:forbidigo // what an export says is for a carrier's log
	if err := export.Run(quiet, o); err != nil {
		return err
	}
	m, err := exported(out)
	if err != nil {
		return err
	}
	if err := r.forget(want.Delivery); err != nil {
		return err
	}
	if b.Tree, err = r.store.Import(ctx, want.Delivery, carrier); err != nil {
		return err
	}
	b.Files = len(m.Files)
	for _, f := range m.Files {
		b.Bytes += f.Size
	}
	_, err = r.store.Open(want.Delivery)
	return err
}

// exported is what the export lists, or why it failed.
func exported(out string) (m manifest.Manifest, err error) {
	data, err := os.ReadFile(filepath.Join(out, manifest.File))
	if err == nil {
		return manifest.Parse(data)
	}
	if data, failed := os.ReadFile(filepath.Join(out, manifest.ErrorFile)); failed == nil {
		failure, err := manifest.ParseFailure(data)
		if err != nil {
			return m, err
		}
		return m, failure
	}
	return m, fmt.Errorf("read what was exported: %w", err)
}

// forget a delivery that was baked before: its tag may have moved.
func (r *Root) forget(id string) error {
	held, err := r.store.Held()
	if err != nil {
		return err
	}
	if _, ok := held[id]; !ok {
		return nil
	}
	delete(held, id)
	return r.store.Retain(slices.Sorted(maps.Keys(held)))
}
