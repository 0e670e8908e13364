// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

// others makes the definition of Modules that of KMM's chart.
func others(s *Snapshot) {
	d := s.Definitions["modules.kmm.sigs.x-k8s.io"]
	bare(s)
	d.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm"}})
	unstructured.RemoveNestedField(d.Object, "spec", "versions")
	s.Definitions[d.GetName()] = d
}

// TestAdvice: what to do next.
func TestAdvice(t *testing.T) {
	const migrate, release = "drover migrate kmm --apply", "drover-operator release"
	const uninstalled = "install Drover to unload them, or run `"
	left := func(by string) func(*Snapshot) {
		return func(s *Snapshot) {
			bare(s)
			s.Modules = []v1beta1.Module{module(false)}
			s.Modules[0].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: by}}
		}
	}
	kmm := func(s *Snapshot) { s.Peers = []coordinationv1.Lease{lease("kmm_1", noon)} }
	for name, tc := range map[string]struct {
		given       func(*Snapshot)
		check       string
		begins, not string
	}{
		"others' definitions":         {others, "definitions", "`" + migrate + "` first", release},
		"KMM runs":                    {kmm, "kmm", "`" + migrate + "` first", "scale"},
		"KMM runs, before":            {func(s *Snapshot) { bare(s); kmm(s) }, "kmm", "`" + migrate + "` first", "scale"},
		"left by Drover":              {left(string(kube.OwnerStatus)), "leftovers", uninstalled + release, migrate},
		"finalizers are Drover's":     {left(string(kube.OwnerFinalizer)), "leftovers", uninstalled + release, migrate},
		"left by KMM, before Drover":  {left("kmm-operator"), "leftovers", "install Drover, or start KMM", release},
		"left by KMM, by what is set": {left("manager"), "leftovers", "install Drover, or start KMM", release},
	} {
		t.Run(name, func(t *testing.T) {
			s := well(t)
			tc.given(s)
			for _, f := range Examine(s).Checks {
				if f.Check != tc.check {
					continue
				}
				if !strings.HasPrefix(f.Next, tc.begins) || strings.Contains(f.Next, tc.not) {
					t.Errorf("it advises %q", f.Next)
				}
				return
			}
			t.Error("it says nothing")
		})
	}
}

// TestInstalledIsNotSeen: what may be there is judged as what is, and the first line does not
// deny it.
func TestInstalledIsNotSeen(t *testing.T) {
	hide := func(s *Snapshot) {
		s.Operator, s.Agents, s.AgentPods, s.Trial = nil, nil, nil, nil
		s.Unseen[partWorkloads] = "get on deployments.apps"
	}
	s := well(t)
	hide(s)
	if says := Examine(s).answer(); says != "No check failed. Whether Drover is installed cannot be told: you lack get on deployments.apps." {
		t.Errorf("it says %q", says)
	}
	s = well(t)
	s.Operator, s.Agents, s.AgentPods, s.Trial = nil, nil, nil, nil
	if says := Examine(s).answer(); says != "This cluster can take Drover, which is not installed." {
		t.Errorf("of a cluster without Drover, it says %q", says)
	}
	judge(t, map[string]row{
		"a definition": {func(s *Snapshot) { hide(s); delete(s.Definitions, imageDefinition) },
			[]string{"FAIL definitions", "UNSEEN install"}},
		"KMM": {func(s *Snapshot) { hide(s); s.Peers = []coordinationv1.Lease{lease("kmm_1", noon)} },
			[]string{"FAIL kmm: KMM's operator runs", "UNSEEN install"}},
		"a policy": {func(s *Snapshot) { hide(s); delete(s.Policies, "drover-carriers") }, []string{"UNSEEN install", "FAIL policies"}},
	})
}
