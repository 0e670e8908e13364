// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/status"
	versioncmd "github.com/drover-project/drover/internal/cli/version"
	"github.com/drover-project/drover/internal/cli/wait"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// TestUnderRoles runs status, wait and version as people with different rights: a Module that is
// ready, and one that fails.
func TestUnderRoles(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Labels: map[string]string{namespace: "yes"}}}
	if err := admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for name, reason := range map[string]string{"good": v1beta1.ReasonReady, "bad": v1beta1.ReasonImageNotFound} {
		m := &v1beta1.Module{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kind": name}},
			Spec: v1beta1.ModuleSpec{Selector: map[string]string{namespace: "yes"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{
				Container: v1beta1.ModuleLoaderContainerSpec{
					Modprobe:       v1beta1.ModprobeSpec{ModuleName: name},
					KernelMappings: []v1beta1.KernelMapping{{Regexp: ".*", ContainerImage: "registry.example.com/nic:1"}},
				},
			}},
		}
		if err := admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		is := metav1.ConditionFalse
		if reason == v1beta1.ReasonReady {
			is = metav1.ConditionTrue
		}
		m.Status = v1beta1.ModuleStatus{ObservedGeneration: m.Generation, Conditions: []metav1.Condition{{
			Type: v1beta1.ConditionReady, Status: is, Reason: reason, Message: "it is so", LastTransitionTime: metav1.Now(),
			ObservedGeneration: m.Generation,
		}}}
		if err := admin.Status().Update(t.Context(), m, client.FieldOwner("test")); err != nil {
			t.Fatal(err)
		}
	}
	everywhere, here := clitest.Viewer(t, e, cluster.ViewerRole, ""), clitest.Viewer(t, e, "drover-module-view", namespace)
	cases := map[string]struct {
		command clitest.New
		blind   bool
		args    string
		then    int
		says    []string
	}{
		"all": {command: status.NewCommand, then: 1,
			says: []string{"2 Modules: 1 failing, 1 ready", "drover explain bad -n " + namespace, "good", "list on pods"}},
		"by label": {command: status.NewCommand, args: "-l kind=good", says: []string{"All well: 1 Module ready"}},
		"one": {command: status.NewCommand, args: "bad", then: 1,
			says: []string{"ImageNotFound", "Next step: push the image", node.Name}},
		"for programs": {command: status.NewCommand, args: "-o json", then: 1,
			says: []string{`"reason": "ImageNotFound"`, `"failing": 1`}},
		"in the namespace only": {command: status.NewCommand, blind: true, then: 1,
			says: []string{"?", "get, list on nodes (cluster-wide)", "drover-module-viewer"}},
		"everywhere, without right": {command: status.NewCommand, blind: true, args: "-A", then: 2,
			says: []string{"list Modules in all namespaces", "forbidden"}},
		"a name and -A": {command: status.NewCommand, args: "bad -A", then: 2, says: []string{"give either MODULE or one " +
			"of -A and -l"}},
		"wait, ready": {command: wait.NewCommand, blind: true, args: "good", says: []string{"/good is ready."}},
		"wait, not ready": {command: wait.NewCommand, blind: true, args: "bad --timeout 1s", then: 1,
			says: []string{"has not reached \"ready\" after 1s: ImageNotFound: it is so", "Next step: push"}},
		"wait, for a condition": {command: wait.NewCommand, args: "bad --for=condition=Ready=False",
			says: []string{"has the condition Ready=False"}},
		"wait, gone already":        {command: wait.NewCommand, args: "none --for=deleted", says: []string{"/none is gone."}},
		"wait, there is none":       {command: wait.NewCommand, args: "none", then: 2, says: []string{"there is no Module none"}},
		"wait, for what is no goal": {command: wait.NewCommand, args: "bad --for=rain", then: 2, says: []string{`cannot wait for "rain"`}},
		"a shell completes Modules": {command: explain.NewCommand, blind: true, args: "__complete x", says: []string{"bad\n", "good\n", ":4"}},
		"a shell completes nodes":   {command: explain.NewCommand, args: "__complete bad x", says: []string{node.Name + "\n", ":4"}},
		"version, without rights": {command: versioncmd.NewCommand, blind: true,
			says: []string{"Client: dev", "you may not list deployments.apps and daemonsets.apps"}},
		"version, of the client alone": {command: versioncmd.NewCommand, blind: true, args: "--client", says: []string{"Client: dev"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := everywhere
			if tc.blind {
				config = here
			}
			out, code := clitest.Run(t, config, namespace, tc.command, strings.Fields(tc.args)...)
			if code != tc.then {
				t.Errorf("it ends with %d, want %d", code, tc.then)
			}
			for _, words := range tc.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
		})
	}
}

// TestWaitSeesWhatChanges: a Module becomes ready while it is waited for.
func TestWaitSeesWhatChanges(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"none": "yes"}}}
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	type result struct {
		out  string
		code int
	}
	ended := make(chan result)
	go func() {
		out, code := clitest.Run(t, e.AdminConfig(), namespace, wait.NewCommand, "nic", "--timeout", "60s")
		ended <- result{out, code}
	}()

	m.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, LastTransitionTime: metav1.Now(),
		ObservedGeneration: m.Generation,
	}}
	if err := admin.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	if r := <-ended; r.code != 0 || !strings.Contains(r.out, "/nic is ready.") {
		t.Errorf("it ends with %d and says: %s", r.code, r.out)
	}
}
