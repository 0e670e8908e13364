// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// reloaded is how it shall be after an upgrade.
var reloaded = tally{Live: true, Loads: 2, Unloads: 1}

// to changes the Module's image to another version.
func (s *scenario) to(version string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage =
			"registry.example.com/" + s.key.Namespace + "/" + s.key.Name + ":" + version + "-${KERNEL_FULL_VERSION}"
	}
}

func withRollout(r v1beta1.RolloutSpec) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) { m.Spec.Rollout = &r }
}

func atMost(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

// gap is the time in which a node was without the kernel module, by its kernel's journal.
type gap struct {
	node     string
	from, to time.Time
}

// gaps are in order of their beginnings.
func (s *scenario) gaps() []gap {
	s.Helper()
	all, err := journal(s.Context(), s.kernelModule)
	s.must(err)
	var found []gap
	for node, calls := range all {
		var last *fake.Call
		for i := range calls {
			if calls[i].Call == "finit_module" && last != nil && last.Call == "delete_module" {
				found = append(found, gap{node: node, from: last.Time, to: calls[i].Time})
			}
			last = &calls[i]
		}
	}
	slices.SortFunc(found, func(a, b gap) int { return a.from.Compare(b.from) })
	return found
}

// together is the greatest number of nodes that were without the kernel module at the same time.
func together(gaps []gap) int {
	most := 0
	for _, a := range gaps {
		n := 0
		for _, b := range gaps {
			if !b.from.After(a.from) && b.to.After(a.from) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestRolloutObeysTheLimit, and begins with one node, judged by the kernels.
func TestRolloutObeysTheLimit(t *testing.T) {
	s := given(t, "limit")
	s.create(withRollout(v1beta1.RolloutSpec{MaxUnavailable: atMost(2), Soak: &metav1.Duration{Duration: time.Second}}))
	s.converged(each(everyNode, once))

	s.change(s.to("2"))

	s.converged(each(everyNode, reloaded))
	gaps := s.gaps()
	if n := together(gaps); len(gaps) != len(everyNode) || n > 2 {
		t.Errorf("%d nodes reloaded, %d at a time: %v", len(gaps), n, gaps)
	}
	if since := gaps[1].from.Sub(gaps[0].to); since < time.Second-10*time.Millisecond {
		t.Errorf("the second node began %s after the first was done; it should wait a second", since)
	}
	s.quiet()
}

// TestRolloutIsLimitedByDefault: 10 % of six nodes are one, also for what needs no new image.
func TestRolloutIsLimitedByDefault(t *testing.T) {
	s := given(t, "default-limit")
	s.create()
	s.converged(each(everyNode, once))

	s.change(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.DirName = "/opt/other" })

	s.converged(each(everyNode, once)) // the same build needs no reload
	s.change(s.to("2"))
	s.converged(each(everyNode, reloaded))
	if gaps := s.gaps(); together(gaps) > 1 {
		t.Errorf("%d nodes at a time: %v", together(gaps), gaps)
	}
}

// TestRolloutPausesWhereAVersionFails: the node is named, the others keep what they have, and a
// retry goes on.
func TestRolloutPausesWhereAVersionFails(t *testing.T) {
	s := given(t, "pauses")
	const bad = "hollow-1"
	s.create(withRollout(v1beta1.RolloutSpec{MaxUnavailable: atMost(1)}))
	s.converged(each(everyNode, once))
	s.must(shared.Debug(s.Context(), "/fault?node="+bad+"&fault=load-enodev"))
	s.Cleanup(func() { s.must(shared.Debug(context.WithoutCancel(s.Context()), "/mend?node="+bad)) })

	s.change(s.to("2"))

	s.eventually("the rollout is paused and names the node", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNoSuchDevice,
			"rollout: 1 of 6 nodes have generation 2", "paused: node "+bad+" failed", "RollingOut on hollow-2")
	})
	untouched := each([]string{"hollow-2", "hollow-3", "hollow-4", "hollow-5"}, once)
	untouched["hollow-0"], untouched[bad] = reloaded, tally{Loads: 1, Unloads: 1}
	s.journalIs(untouched)

	s.must(shared.Debug(s.Context(), "/mend?node="+bad))
	s.change(func(m *v1beta1.Module) {
		m.Annotations = map[string]string{v1beta1.RetryAnnotation: time.Now().UTC().Format(time.RFC3339)}
	})
	s.eventually("all nodes have it", func(ctx context.Context) error {
		return errors.Join(s.ready(ctx), s.labelled(ctx, everyNode), noCarriers(ctx, s.key.Namespace))
	})
	if gaps := s.gaps(); together(gaps) > 1 {
		t.Errorf("%d nodes at a time: %v", together(gaps), gaps)
	}
}

// TestRolloutPausedAndResumed: paused, nobody who has something is changed.
func TestRolloutPausedAndResumed(t *testing.T) {
	s := given(t, "paused")
	nodes := []string{"hollow-0", "hollow-1", "hollow-2"}
	s.create(s.on(nodes...), withRollout(v1beta1.RolloutSpec{MaxUnavailable: atMost(2), Paused: true}))

	s.eventually("first loads wait, too", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonRolloutPaused,
			"rollout: 0 of 3 nodes have generation 1", "paused by spec.rollout.paused")
	})
	s.quiet()
	s.journalIs(map[string]tally{})
	s.change(func(m *v1beta1.Module) { m.Spec.Rollout.Paused = false })
	s.converged(each(nodes, once))

	s.change(func(m *v1beta1.Module) {
		s.to("2")(m)
		m.Spec.Rollout.Paused = true
	})

	s.eventually("the condition says so", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonRolloutPaused,
			"rollout: 0 of 3 nodes have generation 3", "paused by spec.rollout.paused")
	})
	s.quiet()
	s.journalIs(each(nodes, once))

	s.change(func(m *v1beta1.Module) { m.Spec.Rollout.Paused = false })

	s.converged(each(nodes, reloaded))
}

// TestRolloutMassDeselection: more nodes at once than may be unavailable keep what they have until
// somebody confirms it.
func TestRolloutMassDeselection(t *testing.T) {
	s := given(t, "mass")
	nodes := []string{"hollow-3", "hollow-4", "hollow-5"}
	s.create(s.on(nodes...), withRollout(v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{}}))
	s.converged(each(nodes, once))

	// All at once: a selector that chooses nobody.
	s.change(func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{s.selector(): "no"} })

	s.eventually("the condition asks for a confirmation", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonMassDeselection,
			"3 nodes", "at most 1", nodes[0], v1beta1.ConfirmDeselectionAnnotation)
	})
	s.quiet()
	s.journalIs(each(nodes, once))

	s.change(func(m *v1beta1.Module) {
		m.Annotations = map[string]string{v1beta1.ConfirmDeselectionAnnotation: time.Now().UTC().Format(time.RFC3339)}
	})

	s.eventually("all are unloaded", func(ctx context.Context) error {
		return errors.Join(s.labelled(ctx, nil), kernels(ctx, s.kernelModule, each(nodes, tally{Loads: 1, Unloads: 1})))
	})
}

// TestRolloutByVersionLabels is upstream's ordered upgrade: somebody's labels say which node has
// which version.
func TestRolloutByVersionLabels(t *testing.T) {
	s := given(t, "versions")
	const first, second = "hollow-0", "hollow-1"
	label := func(node, version string) {
		s.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1beta1.VersionModulePrefix+s.key.Namespace+"."+s.key.Name, version))
	}
	version := func(v string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { s.to(v)(m); m.Spec.ModuleLoader.Container.Version = v }
	}
	s.Cleanup(func() { label(first, "null"); label(second, "null") })
	s.create(s.on(first, second, "hollow-2"), version("1"), withPlugin("registry.example.com/plugin:1"))
	label(first, `"1"`)
	label(second, `"1"`)
	s.eventually("the labelled nodes have it, with its plugin", func(ctx context.Context) error {
		return errors.Join(s.labelled(ctx, []string{first, second}), s.plugins(ctx, first, "1"), s.plugins(ctx, second, "1"),
			s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonVersionLabel, "hollow-2"))
	})

	s.change(version("2"))
	s.quiet()
	s.journalIs(each([]string{first, second}, once))

	label(first, `"2"`)
	s.eventually("one node is upgraded, the other is not", func(ctx context.Context) error {
		return errors.Join(s.plugins(ctx, first, "2"), s.plugins(ctx, second, "1"),
			kernels(ctx, s.kernelModule, map[string]tally{first: reloaded, second: once}))
	})

	label(second, "null")
	s.eventually("without its label it is unloaded", func(ctx context.Context) error {
		return errors.Join(s.labelled(ctx, []string{first}),
			kernels(ctx, s.kernelModule, map[string]tally{first: reloaded, second: {Loads: 1, Unloads: 1}}))
	})
}
