// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// thirdParty loads Debian's v4l2loopback, which needs the in-tree module videodev of the node.
func (s *Steps) thirdParty(ctx context.Context) error {
	return s.ThirdPartyAs(ctx, client.ObjectKey{Namespace: Restricted, Name: "v4l2loopback"})
}

// ThirdPartyAs compiles third-party code, and loads it by a Module of that key.
func (s *Steps) ThirdPartyAs(ctx context.Context, key client.ObjectKey) error {
	if err := s.InKernel(ctx, artifacts.Linux61, "videodev", false); err != nil {
		return err
	}
	source, err := s.Cache.V4L2Loopback(ctx)
	if err != nil {
		return err
	}
	image, err := s.PushModules(ctx, artifacts.Linux61, source, "kmods/v4l2loopback:0.12.7", nil)
	if err != nil {
		return err
	}
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, "v4l2loopback", "devices=2")); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "v4l2loopback is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, "v4l2loopback")
	}); err != nil {
		return err
	}
	return errors.Join(
		s.InKernel(ctx, artifacts.Linux61, "videodev", true),
		s.Expect(ctx, artifacts.Linux61, "ls /dev/video*", "/dev/video0\n/dev/video1"),
	)
}

// secondKernel boots a node with 6.12 and loads the sample there as in step a.
func (s *Steps) secondKernel(ctx context.Context) error {
	if err := s.StartNode(ctx, artifacts.Linux612, 1); err != nil {
		return err
	}
	release := s.Images.Kernels[artifacts.Linux612].Release
	if _, err := s.PushModules(ctx, artifacts.Linux612, s.Source("drover-sample"), tag(release), nil); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "second"}
	m := Module(key, artifacts.Linux612, registry.Host+"/"+sampleTag+"${KERNEL_FULL_VERSION}", Sample, "devices=3", "greeting=again")
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the Module is ready on "+release, func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux612, key, Sample)
	}); err != nil {
		return err
	}
	return errors.Join(
		s.Expect(ctx, artifacts.Linux612, "cat /sys/module/drover_sample/parameters/devices /sys/module/drover_sample/parameters/greeting",
			"3\nagain"),
		s.Expect(ctx, artifacts.Linux612, "uname -r", release),
		s.Expect(ctx, artifacts.Linux612, suite.Loads, "1"),
	)
}

// Retag pushes one of our images once more, as another build of it: with another version, and so
// another digest.
func (s *Steps) Retag(ctx context.Context, name, version string) error {
	program, err := images.Find(name)
	if err != nil {
		return err
	}
	builder := images.Builder{Repository: s.Cache.Repository(), Output: s.Dir, Version: version}
	image, err := builder.Image(ctx, program, "amd64")
	if err != nil {
		return err
	}
	_, _, err = s.Registry.Push(ctx, "drover/"+name+":"+version, image)
	return err
}

// kubeletIsOfRelease notes the kubelet's version, as it says itself, and checks that it and the API
// server are of the release that is asked for.
func (s *Steps) kubeletIsOfRelease(ctx context.Context) error {
	found := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, found); err != nil {
		return err
	}
	server, err := s.Core.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	kubelet, asked := found.Status.NodeInfo.KubeletVersion, "v"+os.Getenv(devcluster.VersionVariable)+"."
	s.Extra["kubelet"] = kubelet
	for name, version := range map[string]string{"kubelet": kubelet, "API server": server.GitVersion} {
		if !strings.HasPrefix(version, asked) {
			return fmt.Errorf("the %s is of %s, not of %s", name, version, asked)
		}
	}
	return nil
}

// loadWithoutImageVolumes: nothing says how images are delivered; the operator finds out that these
// nodes lack image volumes.
func (s *Steps) loadWithoutImageVolumes(ctx context.Context) error {
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil {
		return err
	}
	if s.Breaks == "mode" {
		if err := s.deliveryMode(ctx, "imageVolume"); err != nil {
			return err
		}
	}
	image, err := s.pushCopyable(ctx)
	if err != nil {
		return err
	}
	return s.copied(ctx, image)
}

// goesAgain: the module of the step before leaves the kernel with its Module.
func (s *Steps) goesAgain(ctx context.Context) error {
	return s.loadsAndGoes(ctx, copiedModule, Sample)
}
