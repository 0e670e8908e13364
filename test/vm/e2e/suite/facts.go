// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/kmodbuild"
	"github.com/drover-project/drover/test/vm/registry"
)

// Expect runs a script on a node's console and compares what it prints.
func (s *Suite) Expect(ctx context.Context, series artifacts.Series, script, want string) error {
	got, err := s.Nodes[series].Output(ctx, script)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s on %s prints %q instead of %q", script, NodeName(series), got, want)
	}
	return nil
}

// Loads is how often our module has been loaded in this boot: it says so in the kernel's log.
const Loads = "dmesg | grep -c 'drover_sample: loaded'"

// AgentPID is, in a script on a node, the process of the deployed agent. The guest has no pgrep.
const AgentPID = "$(ps -o pid,args | awk '/[d]rover-agent run/ {print $1; exit}')"

// InKernel asks the kernel, over the console, whether it holds the module.
func (s *Suite) InKernel(ctx context.Context, series artifacts.Series, module string, want bool) error {
	answer := map[bool]string{true: "1", false: "0"}[want]
	return s.Expect(ctx, series, "grep -c '^"+module+" ' /proc/modules || true", answer)
}

// ConditionIs checks a Module's condition; an empty reason fits all.
func (s *Suite) ConditionIs(ctx context.Context, key client.ObjectKey, condition, status, reason string) error {
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, key, m); err != nil {
		return err
	}
	c := meta.FindStatusCondition(m.Status.Conditions, condition)
	if c == nil || string(c.Status) != status || (reason != "" && c.Reason != reason) || c.ObservedGeneration != m.Generation {
		return fmt.Errorf("condition %s of %s is %+v instead of %s %s", condition, key, c, status, reason)
	}
	return nil
}

func (s *Suite) label(ctx context.Context, series artifacts.Series, key string) (bool, error) {
	n := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: NodeName(series)}, n); err != nil {
		return false, err
	}
	_, ok := n.Labels[key]
	return ok, nil
}

// LabelIs checks whether a node has a label.
func (s *Suite) LabelIs(ctx context.Context, series artifacts.Series, key string, want bool) error {
	have, err := s.label(ctx, series, key)
	if err == nil && have != want {
		err = fmt.Errorf("label %s on %s: %t instead of %t", key, NodeName(series), have, want)
	}
	return err
}

// Ready checks everything that "ready" promises, the kernel last: asking it over the console takes
// time from the node.
func (s *Suite) Ready(ctx context.Context, series artifacts.Series, key client.ObjectKey, module string) error {
	if err := s.LabelIs(ctx, series, v1beta1.ReadyLabel(key.Namespace, key.Name), true); err != nil {
		return err
	}
	if err := s.ConditionIs(ctx, key, v1beta1.ConditionReady, "True", ""); err != nil {
		return err
	}
	return s.InKernel(ctx, series, module, true)
}

// Carriers are the carrier pods of a namespace.
func (s *Suite) Carriers(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, v1beta1.CarrierPrefix) }), nil
}

// Gone checks that an object does not exist.
func (s *Suite) Gone(ctx context.Context, o client.Object) error {
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s is still there", o, client.ObjectKeyFromObject(o))
	}
	return err
}

// PushModules compiles a source folder for a kernel and pushes an image with nothing but the
// modules, or with more files beside them.
func (s *Suite) PushModules(ctx context.Context, series artifacts.Series, source, repository string, more map[string]registry.File) (string,
	error) {
	kernel := s.Images.Kernels[series]
	built, err := kmodbuild.Build(ctx, s.Cache, kernel, source)
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	for name, path := range built {
		files[images.KmodPath(kernel.Release, name+".ko")] = path
	}
	if more != nil {
		return s.pushWithTools(ctx, files, repository, more)
	}
	image, err := images.KmodImage(files, "amd64")
	if err != nil {
		return "", err
	}
	tagged, _, err := s.Registry.Push(ctx, repository, image)
	return tagged, err
}

// pushWithTools pushes an image as most builders leave it: it names no user, which is root.
func (s *Suite) pushWithTools(ctx context.Context, files map[string]string, repository string, more map[string]registry.File) (string,
	error) {
	all := maps.Clone(more)
	for target, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		all[target] = registry.File{Content: content}
	}
	image, err := registry.Image(registry.Spec{Files: all, Env: []string{"PATH=/bin"}})
	if err != nil {
		return "", err
	}
	tagged, _, err := s.Registry.Push(ctx, repository, image)
	return tagged, err
}

// Console runs a script on the first node that must succeed.
func (s *Suite) Console(ctx context.Context, script string) (string, error) {
	return s.Nodes[artifacts.Linux61].Output(ctx, script)
}

// Count runs a script on the first node that prints a number.
func (s *Suite) Count(ctx context.Context, script string) (int, error) {
	output, err := s.Console(ctx, script)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(output)
	if err != nil {
		return 0, fmt.Errorf("%s prints no number: %w", script, err)
	}
	return n, nil
}

// NodeConfig is the first node's NodeModulesConfig.
func (s *Suite) NodeConfig(ctx context.Context) (*v1beta1.NodeModulesConfig, error) {
	nmc := &v1beta1.NodeModulesConfig{}
	err := s.Client.Get(ctx, client.ObjectKey{Name: NodeName(artifacts.Linux61)}, nmc)
	return nmc, err
}

// Release of the first node's kernel.
func (s *Suite) Release() string { return s.Images.Kernels[artifacts.Linux61].Release }

// TagOf is a release as the variable KERNEL_FULL_VERSION gives it.
func TagOf(release string) string { return strings.ReplaceAll(release, "+", "_") }
