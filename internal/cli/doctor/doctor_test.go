// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// says are the findings that are not OK, in short.
func says(r *Report) []string {
	var said []string
	for _, f := range r.Checks {
		if f.State != OK {
			said = append(said, fmt.Sprintf("%s %s: %s", f.State, f.Check, f.Message))
		}
		if f.State == Fail && f.Next == "" {
			said = append(said, f.Check+" does not say what to do")
		}
	}
	return said
}

type row struct {
	given func(*Snapshot)
	// then are the findings that are not OK; each begins so.
	then []string
}

func judge(t *testing.T, cases map[string]row) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := well(t)
			if tc.given != nil {
				tc.given(s)
			}
			said := says(Examine(s))
			if len(said) != len(tc.then) {
				t.Fatalf("it says %q, want %q", said, tc.then)
			}
			for i, words := range tc.then {
				if !strings.Contains(said[i], words) {
					t.Errorf("it says %q, want %q", said[i], words)
				}
			}
		})
	}
}

// TestTheCluster: what was there before Drover.
func TestTheCluster(t *testing.T) {
	dra := schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}
	conversion := func(s *Snapshot) {
		_ = unstructured.SetNestedMap(s.Definitions["modules.kmm.sigs.x-k8s.io"].Object, map[string]any{
			"strategy": "Webhook", "webhook": map[string]any{
				"clientConfig": map[string]any{"service": map[string]any{"namespace": "kmm", "name": "hook", "port": int64(443)}},
			}}, "spec", "conversion")
	}
	judge(t, map[string]row{
		"well":               {},
		"before":             {given: bare},
		"old":                {func(s *Snapshot) { s.Server = "v1.30.9" }, []string{"FAIL kubernetes: the API server is v1.30.9"}},
		"a vendor's version": {given: func(s *Snapshot) { s.Server = "v1.31.0-eks-1" }},
		"without DRA":        {given: func(s *Snapshot) { delete(s.Resources, dra) }},
		"without policies": {
			func(s *Snapshot) { clear(s.Resources) },
			[]string{"FAIL admission: ValidatingAdmissionPolicies are not served"},
		},
		"silent group": {func(s *Snapshot) { s.Silent = []string{"metrics.k8s.io/v1"} }, []string{"WARN silent-apis: "}},
		"own clock": {
			func(s *Snapshot) { s.Now = noon.Add(time.Hour) },
			[]string{"WARN clocks: this machine's clock differs from the API server's: it is 1h0m0s ahead"},
		},
		"node's clock behind": {
			func(s *Snapshot) { s.NodeLeases[0] = lease("a", noon.Add(-time.Hour)) },
			[]string{"WARN clocks: clocks of nodes differ from the API server's: a 1h0m0s behind"},
		},
		"node's clock ahead": {func(s *Snapshot) { s.NodeLeases[1] = lease("b", noon.Add(time.Hour)) }, []string{"b 1h0m0s ahead"}},
		"old lease, dead node": {func(s *Snapshot) {
			s.NodeLeases[0], s.Nodes[0].Status.Conditions = lease("a", noon.Add(-time.Hour)), nil
		}, []string{"WARN nodes: nodes are not Ready"}},
		"a definition lacks a field": {func(s *Snapshot) {
			s.Definitions["modules.kmm.sigs.x-k8s.io"] = crd(t, "drover.dev_moduleimages")
			s.Definitions["modules.kmm.sigs.x-k8s.io"].SetName("modules.kmm.sigs.x-k8s.io")
		}, []string{"do not match this version of Drover (modules.kmm.sigs.x-k8s.io (written by nobody known)"}},
		"a definition is missing": {
			func(s *Snapshot) { delete(s.Definitions, imageDefinition) },
			[]string{"moduleimages.drover.dev is missing"},
		},
		"the definition of rules is missing": {
			func(s *Snapshot) { delete(s.Definitions, ruleDefinition) },
			[]string{"FAIL definitions: the cluster's CustomResourceDefinitions do not match this version of Drover (modulepolicies.drover.dev is"},
		},
		"others' definitions": {func(s *Snapshot) {
			d := s.Definitions["modules.kmm.sigs.x-k8s.io"]
			bare(s)
			d.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm"}})
			unstructured.RemoveNestedField(d.Object, "spec", "versions")
			s.Definitions[d.GetName()] = d
		}, []string{"WARN definitions: definitions of another origin are there: modules.kmm.sigs.x-k8s.io (written by helm)"}},
		"conversion": {
			func(s *Snapshot) { conversion(s); s.Endpoints["kmm/hook"] = true },
			[]string{"FAIL conversion: modules.kmm.sigs.x-k8s.io is converted by a webhook (service kmm/hook)"},
		},
		"conversion without a server": {
			conversion,
			[]string{"FAIL conversion: modules.kmm.sigs.x-k8s.io is converted by a webhook without a server (service kmm/hook)"},
		},
		"KMM": {
			func(s *Snapshot) { s.Peers = []coordinationv1.Lease{lease("kmm_1", noon)} },
			[]string{"FAIL kmm: KMM's operator runs in namespace "},
		},
		"KMM, before": {
			func(s *Snapshot) { bare(s); s.Peers = []coordinationv1.Lease{lease("kmm_1", noon)} },
			[]string{"WARN kmm: KMM's operator runs"},
		},
		"KMM has gone": {given: func(s *Snapshot) { s.Peers = []coordinationv1.Lease{lease("kmm_1", noon.Add(-time.Hour))} }},
		"own lease of that name": {given: func(s *Snapshot) {
			s.Peers = []coordinationv1.Lease{lease("drover-operator-1_x", noon)}
			s.Peers[0].Namespace = system
		}},
	})
}

// TestWhatRefuses: webhooks, Pod Security, policies.
func TestWhatRefuses(t *testing.T) {
	level := func(namespace, to string) func(*Snapshot) {
		return func(s *Snapshot) {
			s.Namespaces[namespace].Labels[enforce] = to
			s.Modules = []v1beta1.Module{module(true)}
		}
	}
	hooks := func(all ...Hook) func(*Snapshot) { return func(s *Snapshot) { s.Hooks = all } }
	spaces := func(value string) func(*Hook) {
		return func(h *Hook) { h.Spaces = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": value}} }
	}
	judge(t, map[string]row{
		"of Modules": {
			hooks(hook("kmm.sigs.x-k8s.io", "modules", nil)),
			[]string{"FAIL webhooks: ValidatingWebhookConfiguration x, webhook x.example, refuses every write of modules: service gone/x has no"},
		},
		"of all": {hooks(hook("*", "*/*", nil)), []string{"FAIL webhooks: "}},
		"of some objects": {
			hooks(hook("", "pods", func(h *Hook) { h.Narrow = true })),
			[]string{"WARN webhooks: ValidatingWebhookConfiguration x, webhook x.example, refuses some writes of pods"},
		},
		"may be missing": {
			hooks(hook("apps", "daemonsets", func(h *Hook) { h.Fails = false })),
			[]string{"WARN webhooks: ValidatingWebhookConfiguration x, webhook x.example, delays writes of daemonsets"},
		},
		"of other kinds":      {given: hooks(hook("apps", "deployments", nil))},
		"of other namespaces": {given: hooks(hook("", "pods", spaces("other")))},
		"of a Module's namespace": {func(s *Snapshot) {
			s.Hooks, s.Modules = []Hook{hook("", "pods", spaces("team"))}, []v1beta1.Module{module(false)}
		}, []string{"FAIL webhooks: "}},
		"with a server":     {given: func(s *Snapshot) { s.Hooks, s.Endpoints["gone/x"] = []Hook{hook("*", "*", nil)}, true }},
		"by an URL":         {given: hooks(hook("*", "*", func(h *Hook) { h.Service = "" }))},
		"agents' namespace": {level(system, "baseline"), []string{`FAIL pod-security: namespace drover-system enforces "baseline"`}},
		"a Module's namespace": {
			level("team", "restricted"),
			[]string{`FAIL pod-security: namespace team enforces "restricted", which refuses the device plugins of nic`},
		},
		"no plugin": {given: func(s *Snapshot) { level("team", "restricted")(s); s.Modules[0] = module(false) }},
		"no label, no trial": {func(s *Snapshot) { bare(s); s.Namespaces[system] = &corev1.Namespace{} },
			[]string{"WARN pod-security: namespace drover-system has no label"}},
		"trial": {
			func(s *Snapshot) { s.Trial.Refused = "pods is forbidden: no host paths" },
			[]string{"FAIL trial: a dry run cannot create an agent's pod: pods is forbidden: no host paths"},
		},
		"policy gone": {
			func(s *Snapshot) { delete(s.Policies, "drover-carriers"); delete(s.Bindings, "drover-modules") },
			[]string{"FAIL policies: admission policies of Drover are missing or not bound: drover-carriers, drover-modules"},
		},
		"anybody may load anything": {func(s *Snapshot) {
			s.Resources[schema.GroupVersionResource{Group: rulesGroup, Version: "v1alpha1", Resource: rulesResource}] = true
		}, []string{"WARN module-policies: there is no ModulePolicy: any namespace may load any kernel module"}},
		"a ModulePolicy": {given: func(s *Snapshot) {
			s.Resources[schema.GroupVersionResource{Group: rulesGroup, Version: "v1alpha1", Resource: rulesResource}] = true
			s.ModulePolicies = 1
		}},
	})
}

// TestTheInstallation: what Drover brought, and the nodes.
func TestTheInstallation(t *testing.T) {
	judge(t, map[string]row{
		"no operator": {
			func(s *Snapshot) { s.Operator = nil },
			[]string{"FAIL operator: Deployment drover-system/drover-operator is missing"},
		},
		"operator not up": {
			func(s *Snapshot) { s.Operator.Status.AvailableReplicas = 0 },
			[]string{"FAIL operator: drover-operator: 0 of 1 pods are available"},
		},
		"operator off": {
			func(s *Snapshot) { s.Operator.Spec.Replicas = ptr.To[int32](0) },
			[]string{"FAIL operator: drover-operator is scaled to 0"},
		},
		"operator half up": {
			func(s *Snapshot) { s.Operator.Spec.Replicas = ptr.To[int32](2) },
			[]string{"WARN operator: drover-operator: 1 of 2"},
		},
		"no agents": {
			func(s *Snapshot) { s.Agents = nil },
			[]string{"FAIL agents: DaemonSet drover-system/drover-agent is missing"},
		},
		"agents not up": {
			func(s *Snapshot) { s.Agents.Status.NumberAvailable = 1 },
			[]string{"WARN agents: 1 of 2 agents are available"},
		},
		"agents of old": {
			func(s *Snapshot) { s.Agents.Status.UpdatedNumberScheduled = 1 },
			[]string{"WARN agents: 1 of 2 agents are of the latest template"},
		},
		"agents nowhere": {
			func(s *Snapshot) { s.Agents.Status.DesiredNumberScheduled = 0 },
			[]string{"WARN agents: the DaemonSet selects no node"},
		},
		"node not chosen": {
			func(s *Snapshot) { s.Nodes[0].Labels = nil },
			[]string{"WARN coverage: 1 node without a working agent, a: the DaemonSet's nodeSelector"},
		},
		"node without pod": {
			func(s *Snapshot) { s.AgentPods = s.AgentPods[:1] },
			[]string{"WARN coverage: 1 node without a working agent, b: no drover-agent pod is on the node"},
		},
		"agents that crash": {
			crash,
			[]string{"WARN coverage: 2 nodes without a working agent, a, b: its pod crashes: its container agent ended 3 times"},
		},
		"agents that ended themselves": {
			func(s *Snapshot) {
				for i := range s.AgentPods {
					s.AgentPods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", RestartCount: 2,
						State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
						LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
							Message: "the agent has made no progress", FinishedAt: metav1.NewTime(s.Now)}}}}
				}
			},
			[]string{"WARN coverage: 2 nodes with an agent that runs again, a, b: its container agent ended 2 times, most recently with " +
				"exit code 1: the agent has made no progress"},
		},
		"a Windows node": {given: func(s *Snapshot) {
			s.Nodes[1].Status.NodeInfo.OperatingSystem = "windows"
			s.AgentPods = s.AgentPods[:1]
		}},
		"other version": {
			func(s *Snapshot) { s.Client = "v1.3.0" },
			[]string{"WARN versions: versions differ: agents v1.2.0, operator 1.2.0, this program v1.3.0"},
		},
		"by digest": {given: func(s *Snapshot) { s.Agents.Spec.Template.Spec.Containers[0].Image = "r.example:5000/a@sha256:12" }},
		"old kubelet": {
			func(s *Snapshot) { s.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.29.1" },
			[]string{"WARN nodes: kubelets are older"},
		},
		"no image volumes": {given: func(s *Snapshot) { s.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.1" }},
		"lockdown": {func(s *Snapshot) {
			s.Configs = []v1beta1.NodeModulesConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			s.Configs[0].Status.Attempts = []v1beta1.NodeModuleAttempt{{Reason: v1beta1.ReasonLockedDown}}
		}, []string{"WARN lockdown: kernels in lockdown refused a module: a"}},
		"uninstalled": {func(s *Snapshot) { bare(s); s.Modules = []v1beta1.Module{module(false)} },
			[]string{"WARN leftovers: no operator runs, and these Modules cannot be deleted: team/nic"}},
		"marks, while Drover runs": {given: mark},
		"marks, uninstalled": {func(s *Snapshot) { bare(s); mark(s) }, []string{
			"WARN leftovers",
			"WARN marks: no operator runs that would end this: nodes that Drover has cordoned: a for team/gone, team/nic",
			"WARN marks: no operator runs that would end this: DeviceTaintRules by which Drover keeps pods off devices: drover-1",
			"WARN marks: no operator runs that would end this: nodes with the condition drover.dev/KernelModulesReady: a",
			"WARN marks: no operator runs that would end this: nodes with labels of Modules that are gone: " +
				"a (kmm.node.kubernetes.io/team.gone.ready)",
			"WARN marks: no operator runs that would take startup taints off: b (team.example.com/nic)",
		}},
		"marks that KMM's operator keeps, too": {func(s *Snapshot) {
			bare(s)
			s.Nodes[0].Labels[v1beta1.ReadyLabel("team", "gone")] = ""
			s.Peers = []coordinationv1.Lease{lease("kmm_1", noon)}
		}, []string{"WARN kmm: KMM's operator runs"}},
		"KMM keeps its Modules": {func(s *Snapshot) {
			bare(s)
			s.Modules, s.Peers = []v1beta1.Module{module(false)}, []coordinationv1.Lease{lease("kmm_1", noon)}
		}, []string{"WARN kmm: KMM's operator runs"}},
		"whether KMM runs is not seen": {func(s *Snapshot) {
			bare(s)
			s.Modules, s.Unseen[partPeers] = []v1beta1.Module{module(false)}, "list on it"
		}, []string{"UNSEEN kmm"}},
		"nothing is seen": {func(s *Snapshot) {
			bare(s)
			for _, part := range []string{partNodes, partSpaces, partWorkloads, partPolicies, partHooks, partCRDs, partPeers} {
				s.Unseen[part] = "list on it"
			}
			s.Nodes, s.NodeLeases = nil, nil
		}, []string{"UNSEEN clocks: nodes are not seen: you lack list on it", "UNSEEN definitions", "UNSEEN kmm", "UNSEEN webhooks",
			"UNSEEN pod-security", "UNSEEN install", "UNSEEN policies", "UNSEEN nodes"}},
	})
}

// mark puts on a node's objects what a change in progress does.
func mark(s *Snapshot) {
	s.Modules = []v1beta1.Module{module(false)}
	s.Modules[0].Spec.StartupTaint = "team.example.com/nic"
	s.TaintRules = []string{"drover-1"}
	a, b := &s.Nodes[0], &s.Nodes[1]
	a.Annotations = map[string]string{v1beta1.CordonedAnnotation: "team/gone,team/nic"}
	a.Labels[v1beta1.ReadyLabel("team", "nic")], a.Labels[v1beta1.ReadyLabel("team", "gone")] = "", ""
	a.Status.Conditions = append(a.Status.Conditions, corev1.NodeCondition{Type: v1beta1.NodeConditionKernelModules})
	b.Spec.Taints = []corev1.Taint{{Key: "team.example.com/nic"}}
}

func crash(s *Snapshot) {
	for i := range s.AgentPods {
		s.AgentPods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", RestartCount: 3,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
	}
}

// TestFeatureGates are read from the API server's metrics.
func TestFeatureGates(t *testing.T) {
	const text = "# HELP x\nkubernetes_feature_enabled{name=\"ImageVolume\",stage=\"BETA\"} 0\n" +
		"kubernetes_feature_enabled{name=\"Other\",stage=\"\"} 1\nup 1\n"
	if diff := cmp.Diff(map[string]bool{"ImageVolume": false, "Other": true}, gates([]byte(text))); diff != "" {
		t.Error(diff)
	}
	s := well(t)
	s.Features = gates([]byte(text))
	if said := features(s); said[0].State != OK || !strings.Contains(said[0].Message, "feature gate ImageVolume") {
		t.Errorf("it says %+v", said)
	}
}

// TestAllPoliciesAreLookedFor: those that config/ has.
func TestAllPoliciesAreLookedFor(t *testing.T) {
	files, err := filepath.Glob("../../../config/policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v: %v", files, err)
	}
	var have []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split(string(content), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				t.Fatal(err)
			}
			if o.GetKind() == "ValidatingAdmissionPolicy" {
				have = append(have, o.GetName())
			}
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(have, bound); diff != "" {
		t.Errorf("policies of config (-) and those looked for (+):\n%s", diff)
	}
}
