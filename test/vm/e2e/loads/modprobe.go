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

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

const (
	// Probed is the module that modprobe loads.
	Probed = "drover_probed"
	// probedNeeds is the kernel's own module that it needs.
	probedNeeds = "crc_itu_t"
	// probedFacts are what the kernel says of both that does not depend on the moment of the load.
	probedFacts = "for f in /sys/module/" + Probed + "/initstate /sys/module/" + Probed + "/taint /sys/module/" + Probed +
		"/parameters/text /sys/module/" + Probed +
		"/notes/.note.gnu.build-id /sys/module/" + probedNeeds + "/initstate /sys/module/" + probedNeeds + "/holders; do " +
		"if test -d $f; then ls $f; else md5sum < $f; fi; done; dmesg | grep -o '" + Probed + ": loaded, .*' | tail -n 1"
	probedText = "text=two words"
)

// modprobe loads one module in three ways: by the agent itself, and by kmod's program with args and
// with rawArgs. It needs a module of the kernel's own, and depmod has never seen its image. The
// kernel must show the same each time, and nothing of it in the end.
func (s *Steps) modprobe(ctx context.Context) error {
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	image, err := s.PushNodeModule(ctx, Probed, nil)
	if err != nil {
		return err
	}
	ways := []struct {
		name   string
		change func(*v1beta1.ModprobeSpec)
	}{
		{"native", func(*v1beta1.ModprobeSpec) {}},
		{"args", func(m *v1beta1.ModprobeSpec) {
			// The program must know these: as parameters, the kernel would complain of them.
			m.Args = &v1beta1.ModprobeArgs{Load: []string{"--first-time"}, Unload: []string{"--first-time"}}
		}},
		{"raw-args", func(m *v1beta1.ModprobeSpec) {
			m.ModuleName, m.Parameters = "", nil
			m.RawArgs = &v1beta1.ModprobeArgs{
				Load:   []string{"--verbose", "--dirname=/tmp/opt", "drover-probed", probedText},
				Unload: []string{"-r", "-d", "/tmp/opt", Probed},
			}
		}},
	}
	facts := map[string]string{}
	for _, way := range ways {
		if facts[way.name], err = s.loadedBy(ctx, way.name, image, way.change); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if facts[way.name] != facts["native"] {
			return fmt.Errorf("%s: the kernel says %s, and %s of a native load", way.name, facts[way.name], facts["native"])
		}
	}
	return nil
}

// loadedBy lets a Module come and go, and returns what the kernel says of it meanwhile.
func (s *Steps) loadedBy(ctx context.Context, name, image string, change func(*v1beta1.ModprobeSpec)) (string, error) {
	key := client.ObjectKey{Namespace: Restricted, Name: "probed-" + name}
	m := Module(key, artifacts.Linux61, image, Probed, probedText)
	change(&m.Spec.ModuleLoader.Container.Modprobe)
	if err := s.Client.Create(ctx, m); err != nil {
		return "", err
	}
	if err := s.Eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, Probed), s.InKernel(ctx, artifacts.Linux61, probedNeeds, true))
	}); err != nil {
		return "", err
	}
	facts, err := s.Console(ctx, probedFacts)
	if err != nil {
		return "", err
	}
	if err := s.Expect(ctx, artifacts.Linux61, "cat /sys/module/"+Probed+"/parameters/text", "two words"); err != nil {
		return "", err
	}
	if err := s.Remove(ctx, key, Probed); err != nil {
		return "", err
	}
	return facts, s.InKernel(ctx, artifacts.Linux61, probedNeeds, false)
}

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
	image, err := s.PushNodeModule(ctx, name, nil)
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
	if err := s.Eventually(ctx, "the file is back after it was removed by hand", has("blacklist "+replaced)); err != nil {
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
