// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// blacklist deploys the opt-in component, and looks for the file of a Module that asks for it,
// while it is there and after.
func (s *Steps) blacklist(ctx context.Context) error {
	const name, replaced = "drover_refused", "tls"
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := s.WithComponent(ctx, "blacklist"); err != nil {
		return err
	}
	content, err := s.NodeModule(ctx, name)
	if err != nil {
		return err
	}
	image, err := s.PushModule(ctx, name, content, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "blacklist"}
	m := Module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{replaced}
	m.Spec.ModuleLoader.Container.BlacklistInTree = true
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	file := "/etc/modprobe.d/drover-" + key.Namespace + "." + key.Name + ".conf"
	has := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			return s.Expect(ctx, artifacts.Linux61, "grep -v '^#' "+file+" 2>/dev/null || echo none", want)
		}
	}
	if err := s.Eventually(ctx, "the module is loaded and what it replaces is blacklisted", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, name), has("blacklist "+replaced)(ctx))
	}); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "rm "+file); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the file is back after somebody removed it", has("blacklist "+replaced)); err != nil {
		return err
	}
	if err := s.Remove(ctx, key, name); err != nil {
		return err
	}
	return s.Eventually(ctx, "the file is gone", has("none"))
}

// WithComponent deploys Drover again, with one of config's components and patches of it.
func (s *Steps) WithComponent(ctx context.Context, component string, patches ...string) error {
	dir := filepath.Join(s.Dir, "with-"+component)
	config := filepath.Join(s.Cache.Repository(), "config")
	from, err := filepath.Rel(dir, config)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", filepath.Join(from, "default"), filepath.Join(from, component))
	for i, patch := range patches {
		if i == 0 {
			text += "patches:\n"
		}
		text += fmt.Sprintf("- patch: %q\n", patch)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", dir); err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "-n", suite.OperatorNamespace, "rollout", "status", "--timeout=90s", "daemonset/drover-agent")
	return err
}
