// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

func installed(s *Snapshot) []Finding {
	if hidden := s.hidden(partWorkloads); hidden != nil {
		return hidden
	}
	switch {
	case s.Installed():
		return ok("operator or agents are in namespace %s", system)
	case s.Hub != nil:
		return ok("this cluster is a hub: it sends Modules to others and loads none itself")
	}
	return ok("neither operator nor agents are there: `make deploy`, or `helm install`, brings them")
}

func operator(s *Snapshot) []Finding {
	var found []Finding
	if s.Operator == nil && s.Agents != nil && s.Unseen[partWorkloads] == "" {
		found = fail("install Drover again", "Deployment %s/%s is missing: agents get no orders", system, operatorName)
	}
	for _, d := range []*appsv1.Deployment{s.Operator, s.Hub} {
		if d == nil {
			continue
		}
		wanted, there := ptr.Deref(d.Spec.Replicas, 1), d.Status.AvailableReplicas
		next := fmt.Sprintf("kubectl -n %s describe pods -l %s=%s", system, nameLabel, d.Name)
		switch {
		case wanted == 0:
			up := fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", system, d.Name)
			found = append(found, fail(up, "%s is scaled to 0", d.Name)...)
		case there == 0:
			found = append(found, fail(next, "%s: 0 of %d pods are available", d.Name, wanted)...)
		case there < wanted || d.Status.UpdatedReplicas < wanted:
			found = append(found, warn(next, "%s: %d of %d pods are available, %d are of the latest template", d.Name, there, wanted,
				d.Status.UpdatedReplicas)...)
		default:
			found = append(found, ok("%s: %d of %d pods are available", d.Name, there, wanted)...)
		}
	}
	return found
}

func agents(s *Snapshot) []Finding {
	if s.Agents == nil {
		if s.Operator == nil || s.Unseen[partWorkloads] != "" {
			return nil
		}
		return fail("install Drover again", "DaemonSet %s/%s is missing: no node loads anything", system, agentName)
	}
	d := &s.Agents.Status
	next := fmt.Sprintf("kubectl -n %s describe pods -l %s=%s", system, nameLabel, agentName)
	switch {
	case d.DesiredNumberScheduled == 0:
		return warn("check the DaemonSet's nodeSelector", "the DaemonSet selects no node")
	case d.NumberAvailable < d.DesiredNumberScheduled:
		return warn(next, "%d of %d agents are available", d.NumberAvailable, d.DesiredNumberScheduled)
	case d.UpdatedNumberScheduled < d.DesiredNumberScheduled:
		return warn("wait for the rollout: kubectl -n "+system+" rollout status daemonset/"+agentName,
			"%d of %d agents are of the latest template", d.UpdatedNumberScheduled, d.DesiredNumberScheduled)
	}
	return ok("%d of %d agents are available", d.NumberAvailable, d.DesiredNumberScheduled)
}

// coverage tells which nodes have no working agent, and why.
func coverage(s *Snapshot) []Finding {
	if s.Agents == nil {
		return nil
	}
	if hidden := s.hidden(partNodes, partPods); hidden != nil {
		return hidden
	}
	on := map[string][]corev1.Pod{}
	for _, p := range s.AgentPods {
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
	}
	fits := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: s.Agents.Spec.Template.Spec})
	without, linux := map[string][]string{}, 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Status.NodeInfo.OperatingSystem == "windows" {
			continue
		}
		linux++
		if match, err := fits.Match(n); err != nil || !match {
			without[notChosen] = append(without[notChosen], n.Name)
			continue
		}
		if why, works := explain.AgentState(on[n.Name], s.Now); !works {
			for i := range on[n.Name] {
				why = strings.Replace(why, "its pod "+system+"/"+on[n.Name][i].Name, "its pod", 1)
			}
			without[why] = append(without[why], n.Name)
		}
	}
	found := append(byCause(without, "put it right if a Module selects these nodes", "%s without a working agent, %s: %s"), again(s)...)
	if len(found) == 0 {
		return ok("each of %s has an agent that runs", words.Count(linux, "node"))
	}
	return found
}

// again tells which agents run again after they had ended themselves, and their last words.
func again(s *Snapshot) []Finding {
	ended := map[string][]string{}
	for i := range s.AgentPods {
		p := &s.AgentPods[i]
		if why := explain.EndedItself(p, s.Now); why != "" {
			ended[why] = append(ended[why], p.Spec.NodeName)
		}
	}
	return byCause(ended, "kubectl -n "+system+" logs --previous of the agent's pod says where", "%s with an agent that runs again, %s: %s")
}

// byCause warns of nodes by cause; format takes their number, some names, and the cause.
func byCause(nodes map[string][]string, next, format string) []Finding {
	var found []Finding
	for i, why := range slices.Sorted(maps.Keys(nodes)) {
		if i == causes {
			return append(found, warn("", "%s more", words.Count(len(nodes)-causes, "cause"))...)
		}
		found = append(found, warn(next, format, words.Count(len(nodes[why]), "node"), words.List(nodes[why], 3), why)...)
	}
	return found
}

// causes is how many causes are told, and notChosen is one of them.
const (
	causes    = 5
	notChosen = "the DaemonSet's nodeSelector or affinity does not choose them"
)

// tag of an image; empty: it is named by digest, or by nothing.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return ""
}

// versions of operator, agents and this program. Images by digest tell none.
func versions(s *Snapshot) []Finding {
	if !s.Installed() {
		return nil
	}
	tags := map[string]string{"this program": s.Client}
	if s.Operator != nil {
		tags["operator"] = tag(firstImage(&s.Operator.Spec.Template.Spec))
	}
	if s.Agents != nil {
		tags["agents"] = tag(firstImage(&s.Agents.Spec.Template.Spec))
	}
	var text []string
	known := map[string]bool{}
	for _, who := range slices.Sorted(maps.Keys(tags)) {
		if tags[who] == "" {
			text = append(text, who+" by digest")
			continue
		}
		text = append(text, who+" "+tags[who])
		known[strings.TrimPrefix(tags[who], "v")] = true
	}
	if len(known) > 1 {
		return warn("install the same version of all parts", "versions differ: %s", strings.Join(text, ", "))
	}
	return ok("%s", strings.Join(text, ", "))
}

func firstImage(spec *corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Image
}

// nodes tells what they run. The API says nothing of cgroup versions.
func nodes(s *Snapshot) []Finding {
	if hidden := s.hidden(partNodes); hidden != nil {
		return hidden
	}
	kernels, runtimes := map[string]bool{}, map[string]bool{}
	var old, down, copying []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		info := &n.Status.NodeInfo
		if info.OperatingSystem == "windows" {
			continue
		}
		kernels[kernel.Show(info)], runtimes[info.ContainerRuntimeVersion] = true, true
		if tooOld(info.KubeletVersion) {
			old = append(old, n.Name+" "+info.KubeletVersion)
		}
		if !isReady(n) {
			down = append(down, n.Name)
		}
		if delivery.ModeAuto.For(info) == delivery.ModeInitContainer {
			copying = append(copying, n.Name)
		}
	}
	found := ok("%s with %s (%s) and %s (%s)", words.Count(len(s.Nodes), "node"), words.Count(len(kernels), "kernel"), some(kernels),
		words.Count(len(runtimes), "container runtime"), some(runtimes))
	if len(copying) > 0 {
		found = append(found, ok("%s, %s, cannot mount images (kubelet 1.35 with containerd 2.1 or CRI-O 1.31): images for them need `cp`",
			words.Count(len(copying), "node"), words.List(copying, 3))...)
	}
	if len(old) > 0 {
		found = append(found, warn("upgrade these kubelets to 1.31 or newer", "kubelets are older than what Drover is tested on: %s",
			words.List(old, 3))...)
	}
	if len(down) > 0 {
		found = append(found, warn("kubectl describe node "+down[0], "nodes are not Ready, and get no images: %s", words.List(down, 3))...)
	}
	return found
}

func some(set map[string]bool) string { return words.List(slices.Sorted(maps.Keys(set)), 3) }

// lockdown is known only from nodes that refused a module for it.
func lockdown(s *Snapshot) []Finding {
	var names []string
	for i := range s.Configs {
		if slices.ContainsFunc(s.Configs[i].Status.Attempts, func(a v1beta1.NodeModuleAttempt) bool {
			return a.Reason == v1beta1.ReasonLockedDown
		}) {
			names = append(names, s.Configs[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return warn(reasons.Next(v1beta1.ReasonLockedDown), "kernels in lockdown refused a module: %s", words.List(names, 3))
}

// leftovers: without an operator, nobody takes the finalizer off a Module that is deleted. KMM's is
// the same, and its operator takes it off.
func leftovers(s *Snapshot) []Finding {
	if s.Operator != nil || s.Unseen[partWorkloads] != "" || s.Unseen[partPeers] != "" || s.peer() != nil {
		return nil
	}
	var kept []string
	before := false
	for i := range s.Modules {
		if slices.Contains(s.Modules[i].Finalizers, v1beta1.ModuleFinalizer) {
			kept = append(kept, s.Modules[i].Namespace+"/"+s.Modules[i].Name)
			before = before || slices.ContainsFunc(s.Modules[i].ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
				return slices.Contains(owners, f.Manager)
			})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	next := "install Drover, or start KMM again"
	if before {
		next = "install Drover to unload them, or run `drover-operator release`, which takes the finalizer off and leaves them loaded"
	}
	return warn(next, "no operator runs, and these Modules cannot be deleted: %s", words.List(kept, 3))
}

// owners are the field managers by which Drover's operator writes Modules.
var owners = []string{"drover-finalizer", "drover-status"}
