// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/bake"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/registry"
)

// Bake runs `drover bake` as the author of a node's image does, for a Module with one image of our
// registry. Nodes that start get the label that tells of it.
func (s *Steps) Bake(ctx context.Context, root string, m *v1beta1.Module) (bake.Baked, error) {
	repository := s.Cache.Repository()
	builder := images.Builder{Repository: repository, Output: filepath.Join(repository, "bin", "images"), Version: "dev"}
	tool, err := builder.BuildBinary(ctx, "cmd/drover", "linux", "amd64")
	if err != nil {
		return bake.Baked{}, err
	}
	m = m.DeepCopy()
	m.APIVersion, m.Kind = v1beta1.GroupVersion.String(), "Module"
	text, err := yaml.Marshal(m)
	if err != nil {
		return bake.Baked{}, err
	}
	file := filepath.Join(s.Dir, "baked-module.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return bake.Baked{}, err
	}
	// Nodes find the registry by its name, which this machine does not know.
	from := strings.Replace(m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage, registry.Host,
		fmt.Sprintf("127.0.0.1:%d", s.Registry.Port()), 1)
	cmd := exec.CommandContext(ctx, tool, "bake", "-f", file, "--kernel", s.Release(), "--root", root,
		"--from", from, "-o", "json")
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return bake.Baked{}, fmt.Errorf("drover bake: %w", err)
	}
	var found []bake.Baked
	if err := json.Unmarshal(output, &found); err != nil || len(found) != 1 {
		return bake.Baked{}, fmt.Errorf("drover bake: %s: %w", output, errors.Join(err, errors.New("one delivery is wanted")))
	}
	s.NodeLabels = map[string]string{found[0].NodeLabel: ""}
	s.Say("   baked %s: delivery %s, %d bytes", found[0].Image, found[0].Delivery, found[0].Bytes)
	return found[0], nil
}

// bakedName is the kernel module that is baked.
const bakedName = "drover_refused"

// prebuiltKey is the Module that a node's image was baked for.
var prebuiltKey = client.ObjectKey{Namespace: Restricted, Name: "prebuilt"}

// prebuilt asks for what the node's image holds: no carrier brings it.
func (s *Steps) prebuilt(ctx context.Context) error {
	if err := s.Client.Create(ctx, s.baked); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "what was baked is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, prebuiltKey, bakedName)
	}); err != nil {
		return err
	}
	if n, err := s.logged(ctx, "Imported", prebuiltKey); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("the agent imported %d times what the node's image holds", n))
	}
	return s.Remove(ctx, prebuiltKey, bakedName)
}
