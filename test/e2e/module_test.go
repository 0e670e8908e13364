// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

func withPlugin(image string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: image}}
	}
}

// daemonSet is the Module's only DaemonSet, when all its pods are ready.
func (s *scenario) daemonSet(ctx context.Context) (*appsv1.DaemonSet, error) {
	var sets appsv1.DaemonSetList
	if err := shared.Admin.List(ctx, &sets, client.InNamespace(s.key.Namespace)); err != nil {
		return nil, err
	}
	if len(sets.Items) != 1 {
		return nil, fmt.Errorf("%d DaemonSets in %s", len(sets.Items), s.key.Namespace)
	}
	set := &sets.Items[0]
	if n := set.Status; n.ObservedGeneration != set.Generation || n.UpdatedNumberScheduled != n.DesiredNumberScheduled ||
		n.NumberReady != n.DesiredNumberScheduled {
		return nil, fmt.Errorf("DaemonSet %s is not up to date: %+v", set.Name, n)
	}
	return set, nil
}

// TestLifecycleGoesWithItsOwner: a Module can belong to somebody's object, and goes with it.
func TestLifecycleGoesWithItsOwner(t *testing.T) {
	s := given(t, "owner")
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "owner"}}
	s.must(shared.Admin.Create(s.Context(), owner))
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	s.create(s.on("hollow-0"), func(m *v1beta1.Module) { m.OwnerReferences = []metav1.OwnerReference{reference} })
	s.converged(each([]string{"hollow-0"}, once))
	m := &v1beta1.Module{}
	s.must(shared.Admin.Get(s.Context(), s.key, m))
	if len(m.OwnerReferences) != 1 || m.OwnerReferences[0] != reference {
		t.Errorf("the Module belongs to %+v", m.OwnerReferences)
	}

	s.must(shared.Admin.Delete(s.Context(), owner))

	s.eventually("the Module went with its owner", func(ctx context.Context) error { return gone(ctx, s.key) })
	s.journalIs(each([]string{"hollow-0"}, tally{Loads: 1, Unloads: 1}))
}

// TestChildrenAreInTheModulesNamespace reads it off everything that was created.
func TestChildrenAreInTheModulesNamespace(t *testing.T) {
	s := given(t, "children")
	next := s.requests()
	s.create(withPlugin("registry.example.com/plugin:1"))
	s.converged(each(everyNode, once))

	created := map[string]int{}
	for _, r := range audit.OurWrites(next()) {
		namespaced := r.ObjectRef.Namespace != ""
		if namespaced && r.ObjectRef.Namespace != s.key.Namespace && r.ObjectRef.Resource != "events" {
			t.Errorf("%s of %s in the namespace %s", r.Verb, r.Resource(), r.ObjectRef.Namespace)
		}
		if namespaced {
			created[r.ObjectRef.Resource]++
		}
	}
	for _, resource := range []string{"pods", "daemonsets", "serviceaccounts"} {
		if created[resource] == 0 {
			t.Errorf("none of the writes was to %s: %v", resource, created)
		}
	}
}

// TestChangedPluginLeavesTheKernelAlone is what two workloads per Module are for.
func TestChangedPluginLeavesTheKernelAlone(t *testing.T) {
	s := given(t, "plugin")
	s.create(withPlugin("registry.example.com/plugin:1"))
	s.converged(each(everyNode, once))
	s.quiet()
	before := map[string]string{}
	for _, node := range everyNode {
		c, err := config(s.Context(), node)
		s.must(err)
		before[node] = c.ResourceVersion
	}

	s.change(withPlugin("registry.example.com/plugin:2"))

	s.eventually("all plugin pods are new", func(ctx context.Context) error {
		set, err := s.daemonSet(ctx)
		if err == nil && (set.Spec.Template.Spec.Containers[0].Image != "registry.example.com/plugin:2" ||
			set.Status.NumberReady != int32(len(everyNode))) {
			err = fmt.Errorf("%d pods of %s", set.Status.NumberReady, set.Spec.Template.Spec.Containers[0].Image)
		}
		return errors.Join(err, s.ready(ctx))
	})
	s.quiet()
	for _, node := range everyNode {
		c, err := config(s.Context(), node)
		s.must(err)
		if c.ResourceVersion != before[node] {
			t.Errorf("NodeModulesConfig %s was written", node)
		}
	}
	s.converged(each(everyNode, once))
}

// TestKernelWithoutMapping: nodes that no mapping covers are named, and hold up neither the others
// nor other Modules.
func TestKernelWithoutMapping(t *testing.T) {
	s := given(t, "uncovered")
	other := s.second("other", "e2e_uncovered_other")
	s.create(func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = `^6\.1\.0-`
	})
	other.create()

	other.converged(each(everyNode, once))
	s.eventually("the covered nodes are done and the others named", func(ctx context.Context) error {
		return errors.Join(
			s.labelled(ctx, evenNodes), kernels(ctx, s.kernelModule, each(evenNodes, once)),
			s.says(ctx, v1beta1.ConditionKernelsCovered, metav1.ConditionFalse, v1beta1.ReasonNoKernelMapping, kernelOdd, oddNodes[0]))
	})

	s.change(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = ".+" })

	s.converged(each(everyNode, once))
}

// TestTwoModulesOfOneName: the first keeps the kernel's name; the second says whose it is.
func TestTwoModulesOfOneName(t *testing.T) {
	s := given(t, "conflict")
	s.create(s.on("hollow-4"))
	s.converged(each([]string{"hollow-4"}, once))
	other := s.second("other", s.kernelModule)
	other.create(s.on("hollow-4"))

	s.eventually("the other Module names the conflict", func(ctx context.Context) error {
		return other.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonModuleConflict, "hollow-4", s.key.String())
	})
	s.must(errors.Join(s.ready(s.Context()), other.labelled(s.Context(), nil)))
	s.journalIs(each([]string{"hollow-4"}, once))

	s.must(shared.Admin.Delete(s.Context(), s.module()))

	s.eventually("the other has the name now", func(ctx context.Context) error {
		return errors.Join(gone(ctx, s.key), other.ready(ctx),
			kernels(ctx, s.kernelModule, map[string]tally{"hollow-4": {Live: true, Loads: 2, Unloads: 1}}))
	})
}

// TestInvalidModuleIsRefused at admission, with the field's path; nothing of it is stored.
func TestInvalidModuleIsRefused(t *testing.T) {
	s := given(t, "invalid")
	cases := map[string]struct {
		given func(*v1beta1.Module)
		then  string
	}{
		"no name of a kernel module": {
			given: func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.ModuleName = "" },
			then:  "spec.moduleLoader.container.modprobe",
		},
		"neither literal nor regexp": {
			given: func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = "" },
			then:  "spec.moduleLoader.container.kernelMappings[0]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := shared.Admin.Create(s.Context(), s.module(tc.given))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.then) {
				t.Errorf("the answer is %v; it should name %s", err, tc.then)
			}
		})
	}
	s.eventually("nothing is there", func(ctx context.Context) error { return gone(ctx, s.key) })
}
