// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package boots measures how long nodes take from power on until a Module is usable: with nothing
// on their disk, with what an earlier boot left, and with what was baked into their image.
package boots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// steps is what the group's steps share.
type steps struct {
	*builds.Steps

	image string // the reference that the Module names
	boots []boot
}

// Groups are this package's.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &steps{Steps: &builds.Steps{Steps: &loads.Steps{Suite: base}}}
	return map[string][][]suite.Step{"boot": {{
		suite.Show("", "control plane, registry and a node at the machine's own speed, where the operator runs", s.begin),
		suite.Show("cold", "a new node has the image pulled, delivered and loaded", s.cold),
		suite.Show("warm", "after a reboot it loads from its store, without a carrier", s.warm),
		suite.Show("baked", "a new node whose image was baked loads from its store, without a carrier", s.baked),
		suite.Show("", "phases of the three boots", s.tell),
	}}}
}

// begin installs Drover where only the operator can run yet, and asks for a Module on all virtual
// nodes that will come.
func (s *steps) begin(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	for _, name := range []string{"drover-operator", "drover-agent"} {
		if err := s.PushProgram(ctx, name); err != nil {
			return err
		}
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(s.Cache.Repository(), "config/default")); err != nil {
		return err
	}
	if err := errors.Join(s.NoAgentOnBuilder(ctx), s.StartBuilder(ctx)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the operator is ready", s.operates); err != nil {
		return err
	}
	if err := s.Namespace(ctx, loads.Restricted, "restricted"); err != nil {
		return err
	}
	more := make([]byte, ballast)
	_, _ = rand.NewChaCha8([32]byte{}).Read(more) // never fails
	tagged, err := s.PushModules(ctx, artifacts.Linux61, s.Source("drover-sample"), repository,
		map[string]registry.File{"/usr/share/drover/toolkit": {Content: more}})
	if err != nil {
		return err
	}
	s.image = tagged
	return s.Client.Create(ctx, s.module())
}

const (
	repository = "kmods/drover-sample:1"
	// ballast is what the image has beside the module, in bytes that no packer makes fewer: images of
	// drivers come with tools and libraries.
	ballast = 64 << 20
)

func (s *steps) operates(ctx context.Context) error {
	d := &appsv1.Deployment{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: "drover-operator"}, d); err != nil {
		return err
	}
	if d.Status.AvailableReplicas == 0 {
		return fmt.Errorf("%d of %d pods are available", d.Status.AvailableReplicas, d.Status.Replicas)
	}
	return nil
}

// module is the same for the API and for `drover bake`.
func (s *steps) module() *v1beta1.Module {
	m := loads.Module(loads.Loader, "", s.image, loads.Sample)
	m.Spec.Selector = map[string]string{suite.LoadsLabel: "true"}
	return m
}
