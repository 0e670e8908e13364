// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestOneAgentHidesNoOtherNode: an agent may report anything, and the status of its node's Modules
// still tells of all nodes, in words that steer no terminal; what was dropped is counted.
func TestOneAgentHidesNoOtherNode(t *testing.T) {
	e := env.Get(t)
	f := &fleet{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	address, _ := f.startServing()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"test": f.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "registry.example/nic:1"}},
			}},
		},
	}
	f.must(f.admin.Create(t.Context(), m))
	attempts := map[string]v1beta1.NodeModuleAttempt{
		"good": {State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonNoSuchDevice, Message: "no such device"},
		"bad": {State: v1beta1.AttemptFailed, Reason: "-", Message: "\x1b[2J\u202eall is well", Attempt: -1,
			Holders: []string{"../..", f.namespace + "/pod"}},
		"new": {State: v1beta1.AttemptFailed, Reason: "ReasonOfTomorrow", Message: "the moon is full"},
	}
	for name, attempt := range attempts {
		f.node(name, "6.1.0-37-amd64")
		item := v1beta1.ModuleItem{Namespace: f.namespace, Name: "nic"}
		order := v1beta1.NodeModuleSpec{ModuleItem: item, Config: v1beta1.ModuleConfig{KernelVersion: "6.1.0-37-amd64",
			ContainerImage: "registry.example/nic:1", Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"}}}
		f.must(f.admin.Create(t.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + name},
			Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{order}}}))
		attempt.Namespace, attempt.Name, attempt.LastTransitionTime = item.Namespace, item.Name, metav1.Now()
		f.report(f.namespace+"-"+name, &v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{attempt}})
	}
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Loaded says %q", last)
		}
	})
	f.await("the words of all nodes", func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(m), m)
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLoaded)
		if c == nil {
			return false, err
		}
		last = c.Message
		for _, want := range []string{"NoSuchDevice on " + f.namespace + "-good", "-bad", "-: ?[2J?all is well", "-new",
			"AgentFailed on "} {
			if !strings.Contains(last, want) {
				return false, err
			}
		}
		return true, err
	})
	f.scrape(address, "what was dropped", func(text string) bool {
		return strings.Contains(text, "\ndrover_report_fields_dropped_total ") && !has(text, "drover_report_fields_dropped_total 0")
	})
}
