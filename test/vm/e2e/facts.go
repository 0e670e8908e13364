// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// expect runs a script on a node's console and compares what it prints.
func (s *suite) expect(ctx context.Context, series artifacts.Series, script, want string) error {
	got, err := s.nodes[series].Output(ctx, script)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s on %s prints %q instead of %q", script, nodeName(series), got, want)
	}
	return nil
}

// loads is how often our module has been loaded in this boot: it says so in the kernel's log.
const loads = "dmesg | grep -c 'drover_sample: loaded'"

// agentPID is, in a script on a node, the process of the deployed agent. The guest has no pgrep.
const agentPID = "$(ps -o pid,args | awk '/[d]rover-agent run/ {print $1; exit}')"

// inKernel asks the kernel, over the console, whether it holds the module.
func (s *suite) inKernel(ctx context.Context, series artifacts.Series, module string, want bool) error {
	answer := map[bool]string{true: "1", false: "0"}[want]
	return s.expect(ctx, series, "grep -c '^"+module+" ' /proc/modules || true", answer)
}

// conditionIs checks a Module's condition; an empty reason fits all.
func (s *suite) conditionIs(ctx context.Context, key client.ObjectKey, condition, status, reason string) error {
	m := &v1beta1.Module{}
	if err := s.client.Get(ctx, key, m); err != nil {
		return err
	}
	c := meta.FindStatusCondition(m.Status.Conditions, condition)
	if c == nil || string(c.Status) != status || (reason != "" && c.Reason != reason) || c.ObservedGeneration != m.Generation {
		return fmt.Errorf("condition %s of %s is %+v instead of %s %s", condition, key, c, status, reason)
	}
	return nil
}

func (s *suite) label(ctx context.Context, series artifacts.Series, key string) (bool, error) {
	n := &corev1.Node{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: nodeName(series)}, n); err != nil {
		return false, err
	}
	_, ok := n.Labels[key]
	return ok, nil
}

// labelIs checks whether a node has a label.
func (s *suite) labelIs(ctx context.Context, series artifacts.Series, key string, want bool) error {
	have, err := s.label(ctx, series, key)
	if err == nil && have != want {
		err = fmt.Errorf("label %s on %s: %t instead of %t", key, nodeName(series), have, want)
	}
	return err
}

// ready checks everything that "ready" promises, the kernel last: asking it over the console takes time from the node.
func (s *suite) ready(ctx context.Context, series artifacts.Series, key client.ObjectKey, module string) error {
	if err := s.labelIs(ctx, series, v1beta1.ReadyLabel(key.Namespace, key.Name), true); err != nil {
		return err
	}
	if err := s.conditionIs(ctx, key, v1beta1.ConditionReady, "True", ""); err != nil {
		return err
	}
	return s.inKernel(ctx, series, module, true)
}

func (s *suite) carriers(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, v1beta1.CarrierPrefix) }), nil
}

// gone checks that an object does not exist.
func (s *suite) gone(ctx context.Context, o client.Object) error {
	err := s.client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s is still there", o, client.ObjectKeyFromObject(o))
	}
	return err
}

// pushModules compiles a source folder for a kernel and pushes an image with nothing but the modules, or with more files beside them.
func (s *suite) pushModules(ctx context.Context, series artifacts.Series, source, repository string, more map[string]registry.File) (string, error) {
	kernel := s.images.Kernels[series]
	built, err := kmodbuild.Build(ctx, s.cache, kernel, source)
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
	tagged, _, err := s.registry.Push(ctx, repository, image)
	return tagged, err
}

// pushWithTools pushes an image as most builders leave it: it names no user, which is root.
func (s *suite) pushWithTools(ctx context.Context, files map[string]string, repository string, more map[string]registry.File) (string, error) {
	all := maps.Clone(more)
	for target, path := range files {
		content, err := readFile(path)
		if err != nil {
			return "", err
		}
		all[target] = registry.File{Content: content}
	}
	image, err := registry.Image(registry.Spec{Files: all, Env: []string{"PATH=/bin"}})
	if err != nil {
		return "", err
	}
	tagged, _, err := s.registry.Push(ctx, repository, image)
	return tagged, err
}
