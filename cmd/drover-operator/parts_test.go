// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller"
	"github.com/drover-project/drover/internal/operator/controller/guard"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/testkit/env"
)

func all(mgr ctrl.Manager, options *operator.Options) map[string]operator.Controller {
	closed := &gate.Gate{}
	return controller.All(mgr, options,
		controller.Shared{Guard: guard.New(mgr.GetClient(), closed, nil), Gate: closed, Metrics: metrics.NewBoard()})
}

// TestEachModeRunsItsControllers: what makes images is not even made on a spoke, so that nothing
// there watches for it.
func TestEachModeRunsItsControllers(t *testing.T) {
	e := env.Get(t)
	whole := []string{"agentpod", "guard", "image", "module", "node", "ooto", "plugin", "preflight", "startup"}
	for flags, want := range map[string][]string{
		"--signer-image=s:1":   whole,
		"--examiner-image=o:1": whole,
		"--mode=cluster":       {"agentpod", "guard", "module", "node", "ooto", "plugin", "preflight", "startup"},
		"--mode=spoke --signer-image=s:1 --examiner-image=o:1": {"agentpod", "claims", "guard", "module", "node", "ooto", "plugin", "startup"},
	} {
		t.Run(flags, func(t *testing.T) {
			options, err := operator.ParseFlags(append(strings.Fields(flags), "--agent-image=a:1", "--metrics-bind-address=0",
				"--health-probe-bind-address=0"))
			if err != nil {
				t.Fatal(err)
			}
			mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
			if err != nil {
				t.Fatal(err)
			}
			all := all(mgr, options)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheConditionIsAskedFor: without the flag, nothing wants to write the status of nodes.
func TestTheConditionIsAskedFor(t *testing.T) {
	e := env.Get(t)
	options, err := operator.ParseFlags([]string{
		"--node-condition", "--agent-image=a:1", "--metrics-bind-address=0", "--health-probe-bind-address=0",
	})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	if all := all(mgr, options); all["condition"] == nil {
		t.Errorf("controllers %v", slices.Sorted(maps.Keys(all)))
	}
}

// TestASpokesRoleMakesNothing: it has no right to what images are made by.
func TestASpokesRoleMakesNothing(t *testing.T) {
	resources := func(file string) map[string]bool {
		content, err := os.ReadFile(filepath.Join("../../config", file))
		if err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(content, role); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if !strings.Contains(resource, "/") {
					found[resource] = true
				}
			}
		}
		return found
	}
	whole, spoke := resources("rbac/operator_role.yaml"), resources("spoke/operator_role.yaml")
	for _, resource := range []string{"jobs", "moduleimages", "preflightvalidations", "secrets"} {
		if spoke[resource] {
			t.Errorf("a spoke's operator may do something with %s", resource)
		}
	}
	for resource := range spoke {
		if !whole[resource] {
			t.Errorf("a spoke's operator may do more with %s than another", resource)
		}
	}
	if !spoke["modules"] || !whole["jobs"] {
		t.Error("the roles are not what this test takes them for")
	}
}
