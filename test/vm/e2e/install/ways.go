// SPDX-License-Identifier: Apache-2.0

//go:build linux

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/drover-project/drover/test/vm/registry"
)

// equal does what `make chart` does.
func (s *steps) equal(ctx context.Context) error {
	return s.program(ctx, `"equal":true`, "run", "./test/chart")
}

// olm does what `make bundle` does.
func (s *steps) olm(ctx context.Context) error {
	bundle := filepath.Join(s.Dir, "bundle")
	if err := s.program(ctx, "", "run", "./hack/bundle", "--version", "v0.1.0", "--out", bundle, "--rest", filepath.Join(s.Dir, "nodes.yaml"),
		"--layout", filepath.Join(s.Dir, "bundle-oci"), "--operator-image", registry.Host+"/drover/drover-operator:dev",
		"--agent-image", registry.Host+"/drover/drover-agent:dev"); err != nil {
		return err
	}
	return s.program(ctx, `"valid":true`, "run", "-C", "tools/olm", ".", bundle)
}

// program runs go in the repository. The program must succeed and say something. What is broken on
// purpose here is not so there.
func (s *steps) program(ctx context.Context, says string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = s.Cache.Repository(), append(os.Environ(), "BREAK=")
	said, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(said), says) {
		err = fmt.Errorf("it does not say %s", says)
	}
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}
