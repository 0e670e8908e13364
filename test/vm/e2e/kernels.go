// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/registry"
)

// thirdParty loads Debian's v4l2loopback, which needs the in-tree module videodev of the node.
func (s *suite) thirdParty(ctx context.Context) error {
	return s.thirdPartyAs(ctx, client.ObjectKey{Namespace: restricted, Name: "v4l2loopback"})
}

func (s *suite) thirdPartyAs(ctx context.Context, key client.ObjectKey) error {
	if err := s.inKernel(ctx, artifacts.Linux61, "videodev", false); err != nil {
		return err
	}
	source, err := s.cache.V4L2Loopback(ctx)
	if err != nil {
		return err
	}
	image, err := s.pushModules(ctx, artifacts.Linux61, source, "kmods/v4l2loopback:0.12.7", nil)
	if err != nil {
		return err
	}
	if err := s.client.Create(ctx, module(key, artifacts.Linux61, image, "v4l2loopback", "devices=2")); err != nil {
		return err
	}
	if err := s.eventually(ctx, "v4l2loopback is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, key, "v4l2loopback")
	}); err != nil {
		return err
	}
	return errors.Join(
		s.inKernel(ctx, artifacts.Linux61, "videodev", true),
		s.expect(ctx, artifacts.Linux61, "ls /dev/video*", "/dev/video0\n/dev/video1"),
	)
}

// secondKernel boots a node with 6.12 and loads the sample there as in step a.
func (s *suite) secondKernel(ctx context.Context) error {
	if err := s.startNode(ctx, artifacts.Linux612, 1); err != nil {
		return err
	}
	release := s.images.Kernels[artifacts.Linux612].Release
	if _, err := s.pushModules(ctx, artifacts.Linux612, s.source("drover-sample"), tag(release), nil); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "second"}
	m := module(key, artifacts.Linux612, registry.Host+"/"+sampleTag+"${KERNEL_FULL_VERSION}", sample, "devices=3", "greeting=again")
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the Module is ready on "+release, func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux612, key, sample)
	}); err != nil {
		return err
	}
	return errors.Join(
		s.expect(ctx, artifacts.Linux612, "cat /sys/module/drover_sample/parameters/devices /sys/module/drover_sample/parameters/greeting", "3\nagain"),
		s.expect(ctx, artifacts.Linux612, "uname -r", release),
		s.expect(ctx, artifacts.Linux612, loads, "1"),
	)
}

// retag pushes one of our images once more, as another build of it: with another version, and so another digest.
func (s *suite) retag(ctx context.Context, name, version string) error {
	program, err := images.Find(name)
	if err != nil {
		return err
	}
	builder := images.Builder{Repository: s.cache.Repository(), Output: s.dir, Version: version}
	image, err := builder.Image(ctx, program, "amd64")
	if err != nil {
		return err
	}
	_, _, err = s.registry.Push(ctx, "drover/"+name+":"+version, image)
	return err
}
