// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

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
