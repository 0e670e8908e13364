// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	device = "/dev/e2e_card0"
	link   = "/sys/class/e2e/card0/state"
)

// readyWhenLinked asks for a device node and a value.
func readyWhenLinked(m *v1beta1.Module) {
	m.Spec.ModuleLoader.Container.ReadyWhen = []v1beta1.ReadyCheck{
		{DeviceNode: "/dev/e2e_card*"}, {Sysfs: &v1beta1.SysfsCheck{Path: "/sys/class/e2e/card0/state", Value: "up"}},
	}
}

// pluginPods objects unless so many plugin pods of the Module are on nodes.
func (s *scenario) pluginPods(ctx context.Context, want int) error {
	var pods corev1.PodList
	err := shared.Admin.List(ctx, &pods, client.InNamespace(s.key.Namespace),
		client.MatchingLabels{v1beta1.ModuleNameLabel: s.key.Name, v1beta1.RoleLabel: "device-plugin"})
	if err == nil && len(pods.Items) != want {
		err = fmt.Errorf("%d plugin pods of %s, not %d", len(pods.Items), s.key, want)
	}
	return err
}

// unusable objects unless the kernel module is live on the node and does not count as ready: no
// label, no plugin, and the Module and the node's entry name what is missing.
func (s *scenario) unusable(ctx context.Context, node, missing string) error {
	return errors.Join(
		kernels(ctx, s.kernelModule, each([]string{node}, once)), s.labelled(ctx, nil), s.pluginPods(ctx, 0),
		s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonNotUsable, node, missing),
		s.says(ctx, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNotUsable),
		s.entrySays(ctx, node, failure{state: v1beta1.AttemptWaiting}, v1beta1.ReasonNotUsable))
}

// TestLifecycleReadyMeansUsable: neither label nor plugin comes before the device is there, and
// both go with it; the kernel module is left alone all the while.
func TestLifecycleReadyMeansUsable(t *testing.T) {
	s := given(t, "usable")
	const node = "hollow-3"
	s.finally(node, "take", "path", device)
	s.finally(node, "take", "path", link)
	labels := s.film(&corev1.NodeList{}, node)

	s.create(s.on(node), withPlugin("registry.example.com/plugin:1"), readyWhenLinked)

	s.eventually("the device node is missing", func(ctx context.Context) error { return s.unusable(ctx, node, "device node /dev/e2e_card*") })
	s.does(node, "put", "path", device)
	s.does(node, "put", "path", link, "value", "down")
	s.eventually("the value is another", func(ctx context.Context) error {
		return s.unusable(ctx, node, `/sys/class/e2e/card0/state with the value "up"`)
	})
	s.does(node, "put", "path", link, "value", "up")
	s.converged(each([]string{node}, once))
	s.must(s.pluginPods(s.Context(), 1))

	s.does(node, "take", "path", device)

	s.eventually("the plugin has left", func(ctx context.Context) error { return s.unusable(ctx, node, "device node /dev/e2e_card*") })
	s.does(node, "put", "path", device)
	s.converged(each([]string{node}, once))
	labels.until(s.readyLabel, "not ready", "ready", "not ready", "ready")
}

// TestLifecycleStartupTaint: a node that was registered with the taint keeps it until all Modules
// that name it are ready there, plugins too, and never gets it back.
func TestLifecycleStartupTaint(t *testing.T) {
	s := given(t, "startup")
	const node = "hollow-1"
	key := s.key.Namespace + ".startup.drover.dev/e2e"
	other := s.second("other", "e2e_startup_other")
	names := func(m *v1beta1.Module) { m.Spec.StartupTaint = key }
	taints := func(o client.Object) string {
		n, ok := o.(*corev1.Node)
		if ok && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key }) {
			return "tainted"
		}
		return "free"
	}
	s.patchNode(node, `{"spec":{"taints":[{"key":"`+key+`","effect":"NoSchedule"}]}}`)
	s.Cleanup(func() { s.patchNode(node, `{"spec":{"taints":null}}`) })
	s.finally(node, "take", "path", device)
	s.finally(node, "take", "path", link)
	film := s.film(&corev1.NodeList{}, node)

	s.create(s.on(node), names, withPlugin("registry.example.com/plugin:1"))
	other.create(s.on(node), names, readyWhenLinked)

	s.eventually("one of the two is ready", func(ctx context.Context) error {
		return errors.Join(s.ready(ctx), s.labelled(ctx, []string{node}), other.unusable(ctx, node, "device node /dev/e2e_card*"))
	})
	s.does(node, "put", "path", device)
	s.does(node, "put", "path", link, "value", "up")
	film.until(taints, "tainted", "free")
	other.converged(each([]string{node}, once))

	s.does(node, "take", "path", device)
	s.eventually("it can be used no more", func(ctx context.Context) error { return other.unusable(ctx, node, "device node /dev/e2e_card*") })
	s.quiet()
	n := &corev1.Node{}
	s.must(shared.Admin.Get(s.Context(), client.ObjectKey{Name: node}, n))
	if taints(n) != "free" {
		t.Errorf("the taint is back: %+v", n.Spec.Taints)
	}
}
