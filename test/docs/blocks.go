// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/test/docs/page"
)

// manifest gives a yaml block to the API server: nothing that it does not know, nothing that it
// refuses. Without apply, nothing stays.
func (sh *shell) manifest(ctx context.Context, b page.Block) error {
	if name := b.Attributes["kustomization"]; name != "" {
		dir := filepath.Join(sh.scene.checkout, name)
		if err := sh.write(filepath.Join(dir, "kustomization.yaml"), b.Text); err != nil {
			return err
		}
		return sh.kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "-k", dir)
	}
	text := b.Text
	if base := b.Attributes["into"]; base != "" {
		merged, err := sh.merge(base, text)
		if err != nil {
			return err
		}
		text = merged
	}
	if name := b.Attributes["save"]; name != "" {
		if err := sh.write(filepath.Join(sh.scene.checkout, name), text); err != nil {
			return err
		}
	}
	args := []string{"apply", "--server-side", "--validate=strict", "-f", "-"}
	if !b.Has("apply") {
		args = append(args, "--dry-run=server", "--force-conflicts")
	}
	return sh.kubectl(ctx, text, args...)
}

// merge lays the block over an object in a file, as a merge patch.
func (sh *shell) merge(base, patch string) (string, error) {
	content, err := os.ReadFile(filepath.Join(sh.scene.checkout, base))
	if err != nil {
		return "", fmt.Errorf("what the block goes into: %w", err)
	}
	whole, err := yaml.YAMLToJSON(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", base, err)
	}
	part, err := yaml.YAMLToJSONStrict([]byte(patch))
	if err != nil {
		return "", fmt.Errorf("read the block: %w", err)
	}
	merged, err := jsonpatch.MergePatch(whole, part)
	if err != nil {
		return "", fmt.Errorf("lay the block over %s: %w", base, err)
	}
	return string(merged), nil
}

func (sh *shell) write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the block: %w", err)
	}
	return nil
}

func (sh *shell) kubectl(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(sh.scene.bin, "assets", "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(sh.dir, "kubeconfig"))
	cmd.Stdin = strings.NewReader(stdin)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

// compile vets a whole Go file as a package of the repository.
func (sh *shell) compile(ctx context.Context, b page.Block) error {
	folder := fmt.Sprintf("docsblock%d", sh.blocks)
	dir := filepath.Join(sh.scene.checkout, "test", folder)
	if err := sh.write(filepath.Join(dir, "block.go"), b.Text); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "vet", "./test/"+folder)
	cmd.Dir = sh.scene.checkout
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go vet: %w: %s", err, said)
	}
	return os.RemoveAll(dir)
}
