// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// TestWhoSeesWhat runs the command under the roles that people have.
func TestWhoSeesWhat(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Labels: map[string]string{namespace: "yes"}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "5.10.0-32-amd64"}},
	}
	module := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{namespace: "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Literal: "6.1.0", ContainerImage: "registry.example.com/nic:1"}},
			}},
		},
	}
	for _, object := range []client.Object{node, module} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	module.Status = v1beta1.ModuleStatus{ObservedGeneration: module.Generation, Conditions: []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNoKernelMapping,
		Message:            "No kernel mapping matches 1 kernel",
		LastTransitionTime: metav1.Now(),
	}}}
	if err := admin.Status().Update(t.Context(), module); err != nil {
		t.Fatal(err)
	}
	everywhere := clitest.Viewer(t, e, cluster.ViewerRole, "")
	here := clitest.Viewer(t, e, "drover-module-view", namespace)
	nobody := e.UserConfig(t, "nobody-"+namespace)
	cases := map[string]struct {
		who  string
		args []string
		then int
		says []string
	}{
		"a viewer": {
			who: "everywhere", args: []string{"nic"}, then: 1,
			says: []string{"is live on 0 of 1 node; NoKernelMapping on 1 node", "Next step: add a mapping", node.Name, "5.10.0-32-amd64",
				"list on pods in namespace"},
		},
		"a viewer, of one node": {
			who: "everywhere", args: []string{"nic", node.Name}, then: 1,
			says: []string{"is not live on node " + node.Name + ": NoKernelMapping", "FAILED   mapping",
				"none of the 1 kernelMappings matches kernel 5.10.0-32-amd64"},
		},
		"for programs": {who: "everywhere", args: []string{"nic", node.Name, "-o", "json"}, then: 1,
			says: []string{`"reason": "NoKernelMapping"`, `"step": "mapping"`}},
		"who may read Modules in a namespace only": {
			who: "here", args: []string{"nic", node.Name}, then: 1,
			says: []string{
				"NoKernelMapping", "No kernel mapping matches 1 kernel", "You may not see everything", "get, list on nodes (cluster-wide)",
				"nodemodulesconfigs.kmm.sigs.x-k8s.io (cluster-wide)", "ClusterRole drover-module-viewer",
			},
		},
		"who may read nothing": {who: "nobody", args: []string{"nic"}, then: 2,
			says: []string{"get Module nic in namespace " + namespace, "forbidden"}},
		"no such Module": {who: "everywhere", args: []string{"nick"}, then: 2,
			says: []string{"there is no Module nick in namespace " + namespace, "drover status -A"}},
		"no such node":   {who: "everywhere", args: []string{"nic", "no-node"}, then: 2, says: []string{"there is no node no-node"}},
		"no such format": {who: "everywhere", args: []string{"nic", "-o", "xml"}, then: 2, says: []string{`unknown output format "xml"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := everywhere
			switch tc.who {
			case "here":
				config = here
			case "nobody":
				config = nobody
			}
			out, code := clitest.Run(t, config, namespace, explain.NewCommand, tc.args...)
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

// TestAgentThatDoesNotAnswer: the order stands, and the pods of the agent say why nothing comes of
// it.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	module := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{namespace: "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Literal: "6.1.0", ContainerImage: "registry.example.com/nic:1"}},
			}},
		},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.Create(t.Context(), module))
	ask := desired.New(module).On("6.1.0", "amd64").State
	unscheduled := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
				Values: []string{namespace + "-full"}}},
		}}},
	}}}
	cases := map[string]struct {
		pod    *corev1.PodSpec
		status corev1.PodStatus
		who    *rest.Config
		says   string
	}{
		"none": {says: "no drover-agent pod is on the node"},
		"pull": {
			pod: &corev1.PodSpec{NodeName: namespace + "-pull"},
			status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
					Message: "agent:1: not found"}},
			}}},
			says: "its pod " + namespace + "/agent-pull cannot start (ImagePullBackOff): agent:1: not found",
		},
		"full": {
			pod: &unscheduled,
			status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "too many pods",
			}}},
			says: "its pod " + namespace + "/agent-full is not scheduled (Unschedulable): too many pods",
		},
		"unseen": {who: clitest.Viewer(t, e, cluster.ViewerRole, ""), says: "list on pods (cluster-wide)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name, Labels: map[string]string{namespace: "yes"}},
				Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0"}},
			}
			must(admin.Create(t.Context(), node))
			must(admin.Create(t.Context(), &v1beta1.NodeModulesConfig{
				ObjectMeta: metav1.ObjectMeta{Name: node.Name},
				Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{{
					ModuleItem: v1beta1.ModuleItem{Namespace: namespace, Name: "nic"}, Config: ask.Config, Delivery: &v1beta1.Delivery{ID: ask.Delivery},
				}}},
			}))
			if tc.pod != nil {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: "agent-" + name, Labels: map[string]string{"app.kubernetes.io/name": "drover-agent"},
				}, Spec: *tc.pod}
				pod.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent:1"}}
				must(admin.Create(t.Context(), pod))
				pod.Status = tc.status
				must(admin.Status().Update(t.Context(), pod))
			}
			who := tc.who
			if who == nil {
				who = e.AdminConfig()
			}
			out, code := clitest.Run(t, who, namespace, explain.NewCommand, "nic", node.Name)
			if code != 1 || !strings.Contains(out, tc.says) {
				t.Errorf("it ends with %d, and does not say %q:\n%s", code, tc.says, out)
			}
		})
	}
}
