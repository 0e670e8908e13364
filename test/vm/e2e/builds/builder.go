// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/node"
)

const (
	// BuilderLabel is on the node that builds.
	BuilderLabel = "e2e.drover.dev/builds"
	builderIndex = 100
)

// StartBuilder starts the node that builds.
func (s *Steps) StartBuilder(ctx context.Context) error {
	ca, err := os.ReadFile(s.Cluster.CA)
	if err != nil {
		return err
	}
	var taints []corev1.Taint
	if len(s.Nodes) > 0 { // they are for all that is not a build
		taints = []corev1.Taint{{Key: BuilderLabel, Effect: corev1.TaintEffectNoSchedule}}
	}
	s.Builder, err = node.StartNative(ctx, s.Cache, node.Config{
		Name: suite.BuilderName, Index: builderIndex, Dir: filepath.Join(s.Dir, suite.BuilderName), Server: s.Cluster.Server, CA: ca,
		Token: s.Cluster.NodeTokens[suite.BuilderName], RegistryPort: s.Registry.Port(), Labels: map[string]string{BuilderLabel: "true"},
		Taints: taints, Peers: slices.Sorted(maps.Values(s.SpokePorts)),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.Patience))
	defer cancel()
	return s.Builder.WaitReady(ctx, s.Core)
}

// onBuilder has a Module's image built there.
func onBuilder(m *v1beta1.Module) {
	m.Spec.ModuleLoader.Container.Build.Selector = map[string]string{BuilderLabel: "true"}
	m.Spec.Tolerations = []corev1.Toleration{{Key: BuilderLabel, Operator: corev1.TolerationOpExists}}
}
