// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/internal/shared/words"
)

// What Drover must be able to write, by group. Pods and DaemonSets are made in namespaces that a
// webhook may leave out.
var (
	ownKinds = map[string][]string{
		"kmm.sigs.x-k8s.io": {"modules", "nodemodulesconfigs", "preflightvalidations"}, "drover.dev": {"moduleimages"},
	}
	podKinds = map[string][]string{"": {"pods"}, "apps": {"daemonsets"}}
)

// concerns is what of Drover's writes a webhook sees; empty: nothing.
func (s *Snapshot) concerns(h *Hook) string {
	for _, rule := range h.Rules {
		if what := matched(rule.Rule, ownKinds); what != "" {
			return what
		}
		if what := matched(rule.Rule, podKinds); what != "" && s.inOurs(h.Spaces) {
			return what
		}
	}
	return ""
}

func matched(rule admissionv1.Rule, kinds map[string][]string) string {
	for _, group := range slices.Sorted(maps.Keys(kinds)) {
		if !slices.Contains(rule.APIGroups, "*") && !slices.Contains(rule.APIGroups, group) {
			continue
		}
		for _, resource := range kinds[group] {
			if slices.ContainsFunc(rule.Resources, func(r string) bool { return r == "*" || r == "*/*" || r == resource }) {
				return resource
			}
		}
	}
	return ""
}

// inOurs reports whether a selector of namespaces chooses one in which Drover makes pods.
func (s *Snapshot) inOurs(spaces *metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(spaces)
	if spaces == nil || err != nil || s.Unseen[partSpaces] != "" {
		return true
	}
	names := map[string]bool{system: true}
	for i := range s.Modules {
		names[s.Modules[i].Namespace] = true
	}
	for name := range names {
		if n := s.Namespaces[name]; n != nil && selector.Matches(labels.Set(n.Labels)) {
			return true
		}
	}
	return false
}

// webhooks without a server refuse or delay what Drover writes.
func webhooks(s *Snapshot) []Finding {
	if hidden := s.hidden(partHooks, partServices); hidden != nil {
		return hidden
	}
	var found []Finding
	watching := 0
	for i := range s.Hooks {
		h := &s.Hooks[i]
		what := s.concerns(h)
		if what == "" {
			continue
		}
		watching++
		if h.Service == "" || s.Endpoints[h.Service] {
			continue
		}
		next := "start its server, or delete the configuration if its owner is gone"
		switch {
		case h.Fails && !h.Narrow:
			found = append(found, fail(next, "%s, webhook %s, refuses every write of %s: service %s has no ready endpoint", h.Configuration, h.Name,
				what, h.Service)...)
		case h.Fails:
			found = append(found, warn(next, "%s, webhook %s, refuses some writes of %s: service %s has no ready endpoint", h.Configuration, h.Name,
				what, h.Service)...)
		default:
			found = append(found, warn(next, "%s, webhook %s, delays writes of %s: service %s has no ready endpoint", h.Configuration, h.Name,
				what, h.Service)...)
		}
	}
	if found == nil {
		return ok("%s of others sees what Drover writes, none of them without a server", words.Count(watching, "webhook"))
	}
	return found
}

const enforce = "pod-security.kubernetes.io/enforce"

// podSecurity: the agent and device plugins have host paths, which only privileged allows.
func podSecurity(s *Snapshot) []Finding {
	if hidden := s.hidden(partSpaces); hidden != nil {
		return hidden
	}
	next := func(name string) string {
		return "kubectl label namespace " + name + " " + enforce + "=privileged --overwrite"
	}
	var found []Finding
	if n := s.Namespaces[system]; n != nil {
		switch level := n.Labels[enforce]; {
		case level == "" && s.Trial == nil:
			found = append(found, warn(next(system), "namespace %s has no label %s: a stricter default of the cluster would refuse agents", system,
				enforce)...)
		case level != "" && level != "privileged":
			found = append(found, fail(next(system), "namespace %s enforces %q, which refuses the agents' pods", system, level)...)
		}
	}
	plugins := map[string][]string{}
	for i := range s.Modules {
		m := &s.Modules[i]
		n := s.Namespaces[m.Namespace]
		if m.Spec.DevicePlugin == nil && m.Spec.DRA == nil || n == nil {
			continue
		}
		if level := n.Labels[enforce]; level != "" && level != "privileged" {
			plugins[m.Namespace] = append(plugins[m.Namespace], m.Name)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(plugins)) {
		found = append(found, fail(next(namespace), "namespace %s enforces %q, which refuses the device plugins of %s", namespace,
			s.Namespaces[namespace].Labels[enforce], words.List(plugins[namespace], 3))...)
	}
	if found == nil {
		return ok("no namespace of Drover or of a Module refuses what must run there")
	}
	return found
}

func trial(s *Snapshot) []Finding {
	switch {
	case s.Trial == nil:
		return s.hidden(partTrial)
	case s.Trial.Refused == "":
		return ok("a dry run creates an agent's pod in namespace %s", system)
	}
	return fail("let the policy, webhook or quota that the message names admit the agents' pods", "a dry run cannot create an agent's pod: %s",
		s.Trial.Refused)
}

// bound are the admission policies that Drover brings.
var bound = []string{"drover-agent-status", "drover-carrier-image", "drover-carriers", "drover-daemonsets-of-modules", "drover-kubelets",
	"drover-module-annotations", "drover-module-policies", "drover-module-policies-audit", "drover-modules", "drover-namespaces",
	"drover-namespaces-of-modules", "drover-operator-configmaps", "drover-operator-deletes", "drover-operator-modules",
	"drover-operator-nodes", "drover-operator-pods", "drover-operator-workloads"}

func policies(s *Snapshot) []Finding {
	if !s.maybe() {
		return nil
	}
	if hidden := s.hidden(partPolicies); hidden != nil {
		return hidden
	}
	missing := slices.DeleteFunc(slices.Clone(bound), func(name string) bool { return s.Policies[name] && s.Bindings[name] })
	if len(missing) == 0 {
		return ok("all %d admission policies of Drover are bound", len(bound))
	}
	return fail("apply config/policies again, or upgrade the chart", "admission policies of Drover are missing or not bound: %s",
		strings.Join(missing, ", "))
}

// The kind of rules about who may load what.
const rulesGroup, rulesResource = "drover.dev", "modulepolicies"

func modulePolicies(s *Snapshot) []Finding {
	if !s.serves(rulesGroup, rulesResource) {
		return nil
	}
	if hidden := s.hidden(partRules); hidden != nil {
		return hidden
	}
	if s.ModulePolicies > 0 {
		return ok("ModulePolicies say who may load what: there is at least one")
	}
	return warn("create ModulePolicies that say which namespaces may load what",
		"there is no ModulePolicy: any namespace may load any kernel module")
}
