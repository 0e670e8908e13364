// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/node"
)

const (
	// BreakUnsigned is the value of BREAK that has the image pushed before it is signed, too. All goes
	// well but for that.
	BreakUnsigned = "unsigned"
	// BuilderName is a node that only builds, at the machine's own speed. An emulated one compiles
	// many times slower.
	BuilderName = "builder"
	// LoadsLabel is on virtual nodes.
	LoadsLabel = "e2e.drover.dev/loads"
	// Needy is a second node with the first one's kernel.
	Needy artifacts.Series = "6.1-needy"
)

// NodeName is the name of a kernel's node.
func NodeName(series artifacts.Series) string { return "vm-" + string(series) }

// StartNode starts a node that is called after its kernel.
func (s *Suite) StartNode(ctx context.Context, series artifacts.Series, index int) error {
	return s.StartSeries(ctx, series, series, index)
}

// StartSeries starts a node that is not called after its kernel.
func (s *Suite) StartSeries(ctx context.Context, series, kernel artifacts.Series, index int) error {
	ca, err := os.ReadFile(s.Cluster.CA)
	if err != nil {
		return err
	}
	name := NodeName(series)
	labels := map[string]string{LoadsLabel: "true"}
	maps.Copy(labels, s.NodeLabels)
	n, err := node.Start(ctx, s.Images, node.Config{
		Name: name, Index: index, Kernel: kernel, KernelArgs: s.KernelArgs, Dir: filepath.Join(s.Dir, name),
		Server: s.Cluster.Server, CA: ca, Token: s.Cluster.NodeTokens[name], RegistryPort: s.Registry.Port(),
		Labels: labels, Files: s.GuestFiles, MemMB: machines[Group()].memMB, SMP: machines[Group()].smp,
	})
	if err != nil {
		return err
	}
	if s.Nodes == nil {
		s.Nodes = map[artifacts.Series]*node.Node{}
	}
	s.Nodes[series] = n
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.Patience))
	defer cancel()
	found, err := n.WaitReady(ctx, s.Core)
	if err != nil {
		return err
	}
	s.kernels = append(s.kernels, found.Status.NodeInfo.KernelVersion)
	s.Boots = append(s.Boots, found.Status.NodeInfo.BootID)
	return nil
}

// NoAgentOnBuilder keeps the agent on virtual nodes: the kernel of the one that builds is this
// machine's own.
func (s *Suite) NoAgentOnBuilder(ctx context.Context) error {
	terms := corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: LoadsLabel, Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	affinity, err := json.Marshal(terms)
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":%s}}}}`, affinity)
	_, err = s.Kubectl(ctx, "-n", OperatorNamespace, "patch", "daemonset", "drover-agent", "--type=merge", "-p", patch)
	return err
}

// PushProgram builds the image of one of Drover's programs, and pushes it as config/ names it.
func (s *Suite) PushProgram(ctx context.Context, name string) error {
	_, err := s.PushRelease(ctx, name, "dev")
	return err
}

// PushRelease builds the image of one of Drover's programs as a version of it, pushes it under that
// tag, and returns its digest.
func (s *Suite) PushRelease(ctx context.Context, name, version string) (digest string, err error) {
	s.building.Lock()
	defer s.building.Unlock()
	program, err := images.Find(name)
	if err != nil {
		return "", err
	}
	builder := images.Builder{Repository: s.Cache.Repository(), Output: filepath.Join(s.Cache.Repository(), "bin", "images"), Version: version}
	if program.Kmod {
		kmod, err := s.Cache.Entry(ctx, "image-kmod", []string{"3", "amd64"}, func(ctx context.Context, dir string) error {
			return images.FetchKmod(ctx, dir, "amd64")
		})
		if err != nil {
			return "", err
		}
		builder.Kmod = map[string]string{"amd64": kmod}
	}
	image, err := builder.Image(ctx, program, "amd64")
	if err != nil {
		return "", err
	}
	_, pinned, err := s.Registry.Push(ctx, "drover/"+name+":"+version, image)
	_, digest, _ = strings.Cut(pinned, "@")
	return digest, err
}
