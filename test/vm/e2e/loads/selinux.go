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
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// breakFile is the value of BREAK that has the agent load from its files: its node tells nothing of
// SELinux.
const breakFile = "file"

// seLinuxSteps are those of a node that enforces Debian's policy with more rules.
func (s *Steps) seLinuxSteps(rules string) []suite.Step {
	return []suite.Step{
		suite.Show("", "control plane, registry, operator and a node that enforces SELinux", func(ctx context.Context) error {
			if err := s.Begin(ctx); err != nil {
				return err
			}
			if err := s.enforceFromStart(ctx, rules); err != nil {
				return err
			}
			return s.Deploy(ctx)
		}),
		suite.Show("enforcing", "SELinux is enforced, for the agent as spc_t and for the operator as container_t", s.enforcing),
		suite.Show("loaded", "a Module loads a module of ours with its parameters", s.LoadModule),
		suite.Show("reloaded", "what is unloaded by hand is loaded again", s.repair),
		suite.Show("firmware", "a module finds the firmware that came with it, and takes it along when it goes", s.firmware),
		suite.Show("inTree", "a module of the kernel's own makes room, with its user, and both come back", s.inTree),
		suite.Show("modprobe", "kmod's modprobe loads and unloads with args, and with rawArgs", s.modprobe),
		suite.Show("prebuilt", "what the node's image was baked with is loaded, without a carrier", s.prebuilt),
		suite.Show("", "SELinux has denied nothing of what was needed", s.noDenials(rules)),
		suite.Show("forbidden", "while SELinux lets nothing load modules the Module says so, and recovers", s.forbidden),
		suite.Show("rebooted", "after a reboot it is loaded without registry, carrier and operator", s.rebootAlone),
		suite.Show("", "SELinux has denied nothing of what was needed", s.noDenials(rules)),
		suite.Show("staticPod", "with the static pod, after a reboot it is loaded before the API server is back", s.StaticPod),
		suite.Show("initContainer", "the init container delivers, and the module goes", s.initContainer),
		suite.Show("plugin", "the device plugin registers and an unprivileged pod reads the device", s.devicePlugin),
		suite.Show("unloaded", "a deleted Module leaves the kernel, the labels and the API", s.moduleDeleted),
		suite.Show("", "SELinux has denied nothing of what was needed", s.noDenials(rules)),
		suite.Show("signed", "where signatures are enforced, too, a trusted one loads and another does not", s.signedOnly),
		suite.Show("", "SELinux has denied nothing of what was needed", s.noDenials(rules)),
	}
}

// enforceFromStart has the nodes that start enforce a policy.
func (s *Steps) enforceFromStart(ctx context.Context, rules string) error {
	policy, err := s.Cache.SELinux(ctx, rules)
	if err != nil {
		return err
	}
	image, err := s.PushNodeModule(ctx, bakedName, nil)
	if err != nil {
		return err
	}
	s.baked = Module(prebuiltKey, artifacts.Linux61, image, bakedName)
	s.KernelArgs = []string{"security=selinux", "selinux=1", "audit=1"}
	s.Images, err = s.Cache.ChangedRoot(ctx, s.Images, filepath.Join(s.Dir, "selinux"), func(tree string) error {
		runtime := filepath.Join(tree, "etc/containerd/config.toml")
		if err := replaceInFile(runtime, "enable_selinux = false", "enable_selinux = true"); err != nil {
			return err
		}
		if s.Breaks == breakFile {
			if err := os.MkdirAll(filepath.Join(tree, "etc/selinux"), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(tree, "etc/selinux/filesystems"), []byte("nodev\tsysfs\n"), 0o644); err != nil {
				return err
			}
		}
		if _, err := s.Bake(ctx, tree, s.baked); err != nil {
			return err
		}
		return policy.Label(ctx, tree)
	})
	return err
}

func replaceInFile(name, old, replacement string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed := strings.ReplaceAll(string(content), old, replacement)
	if changed == string(content) {
		return fmt.Errorf("%s has no %q", name, old)
	}
	return os.WriteFile(name, []byte(changed), 0o644)
}

// forbidden sets the boolean that keeps every process from loading modules, until the next boot at
// most, and takes the module out by hand.
func (s *Steps) forbidden(ctx context.Context) error {
	set := func(value string) error {
		_, err := s.Console(ctx, "echo "+value+" >/sys/fs/selinux/booleans/secure_mode_insmod && echo 1 >/sys/fs/selinux/commit_pending_bools")
		return err
	}
	if err := set("1"); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "rmmod "+Sample); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the Module says that SELinux forbids it", func(ctx context.Context) error {
		return s.ConditionIs(ctx, Loader, v1beta1.ConditionLoaded, "False", v1beta1.ReasonSELinux)
	}); err != nil {
		return err
	}
	if err := set("0"); err != nil {
		return err
	}
	return s.loaderReady(ctx)
}

func (s *Steps) enforcing(ctx context.Context) error {
	const contexts = "cat /sys/fs/selinux/enforce; echo; for p in '[d]rover-agent run' '[d]rover-operator'; do " +
		"tr -d '\\0' < /proc/$(ps -o pid,args | awk -v p=\"$p\" '$0 ~ p {print $1; exit}')/attr/current | cut -d: -f3; done"
	s.Counts["policies"], s.Counts["denials"] = 1, 0
	return s.Expect(ctx, artifacts.Linux61, contexts, "1\nspc_t\ncontainer_t")
}

// asked is the kernel's line about a load from a copy in memory, which Debian's policy denies: the
// agent finds out, and goes on.
const asked = "{ module_load }"

// noDenials looks for denials in the kernel's log. It has all of this boot: nothing reads the audit
// log on the node. What the node's own programs are denied is permitted all the same, and not
// counted.
func (s *Steps) noDenials(rules string) func(context.Context) error {
	return func(ctx context.Context) error {
		lines, err := s.Console(ctx, "dmesg | grep 'avc:  denied' | grep -v permissive=1 || true")
		if err != nil {
			return err
		}
		for line := range strings.Lines(lines) {
			if rules == "" && strings.Contains(line, asked) && strings.Contains(line, "tclass=system") {
				continue
			}
			s.Counts["denials"]++
		}
		if n := s.Counts["denials"]; n > 0 {
			return fmt.Errorf("SELinux denied %d times: %s", n, lines)
		}
		return nil
	}
}

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
