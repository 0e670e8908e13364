// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/node"
)

const (
	// builderName is a node that only builds, at the machine's own speed. An emulated one compiles many times slower.
	builderName  = "builder"
	builderLabel = "e2e.drover.dev/builds"
	// loadsLabel is on virtual nodes.
	loadsLabel   = "e2e.drover.dev/loads"
	builderIndex = 100
)

// startBuilder starts the node that builds.
func (s *suite) startBuilder(ctx context.Context) error {
	ca, err := os.ReadFile(s.cluster.CA)
	if err != nil {
		return err
	}
	var taints []corev1.Taint
	if len(s.nodes) > 0 { // they are for all that is not a build
		taints = []corev1.Taint{{Key: builderLabel, Effect: corev1.TaintEffectNoSchedule}}
	}
	s.builder, err = node.StartNative(ctx, s.cache, node.Config{
		Name: builderName, Index: builderIndex, Dir: filepath.Join(s.dir, builderName), Server: s.cluster.Server, CA: ca,
		Token: s.cluster.NodeTokens[builderName], RegistryPort: s.registry.Port(), Labels: map[string]string{builderLabel: "true"},
		Taints: taints, Peers: slices.Sorted(maps.Values(s.spokePorts)),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.patience))
	defer cancel()
	return s.builder.WaitReady(ctx, s.core)
}

// noAgentOnBuilder keeps the agent on virtual nodes: the kernel of the one that builds is this machine's own.
func (s *suite) noAgentOnBuilder(ctx context.Context) error {
	terms := corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: loadsLabel, Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	affinity, err := json.Marshal(terms)
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":%s}}}}`, affinity)
	_, err = s.kubectl(ctx, "-n", operatorNamespace, "patch", "daemonset", "drover-agent", "--type=merge", "-p", patch)
	return err
}

// onBuilder has a Module's image built there.
func onBuilder(m *v1beta1.Module) {
	m.Spec.ModuleLoader.Container.Build.Selector = map[string]string{builderLabel: "true"}
	m.Spec.Tolerations = []corev1.Toleration{{Key: builderLabel, Operator: corev1.TolerationOpExists}}
}
