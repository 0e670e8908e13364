// SPDX-License-Identifier: Apache-2.0

// Package modulepolicy decides what Modules may do beyond their namespace: what ModulePolicies
// allow them, and which startup taints they may name. It is pure. The admission policy
// drover-module-policies decides the same of what a Module alone tells.
package modulepolicy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Place is where a Module would be loaded.
type Place struct {
	// Name of the Module's namespace.
	Name string
	// Namespace and Node are the labels of both.
	Namespace, Node map[string]string
}

// Wish is what a Module would load on a kernel.
type Wish struct {
	Config *v1beta1.ModuleConfig
	// Builds: the image is built in the cluster.
	Builds bool
	// Unsigned is the image that is signed in the cluster; empty: none is.
	Unsigned string
	// Drain is spec.rollout.drain.
	Drain v1beta1.DrainPolicy
}

// Set holds the ModulePolicies of a cluster, by name. The zero value allows everything.
type Set struct{ policies []v1alpha1.ModulePolicy }

// Of makes a set. It keeps the policies' content.
func Of(policies []v1alpha1.ModulePolicy) Set {
	sorted := slices.Clone(policies)
	slices.SortFunc(sorted, func(a, b v1alpha1.ModulePolicy) int { return cmp.Compare(a.Name, b.Name) })
	return Set{sorted}
}

// Empty reports whether there is no policy.
func (s Set) Empty() bool { return len(s.policies) == 0 }

// Denied is why the first policy that is enforced there, by name, does not allow the wish, or nil.
func (s Set) Denied(w *Wish, at *Place) *reasons.Problem {
	return s.first(v1alpha1.PolicyEnforce, at, onNode, w.rule(at))
}

// Audited is why the first policy that is only tried there would not allow the wish, or nil.
func (s Set) Audited(w *Wish, at *Place) *reasons.Problem {
	return s.first(v1alpha1.PolicyAudit, at, onNode, w.rule(at))
}

func (w *Wish) rule(at *Place) rule {
	return func(p *v1alpha1.ModulePolicy) []string { return deny(p, w, at) }
}

// rule are the reasons for which a policy does not allow something; none: it does.
type rule func(p *v1alpha1.ModulePolicy) []string

// scope is whether a policy must choose the node as well.
type scope bool

const (
	onNode     scope = true
	inTheWhole scope = false // what belongs to no node
)

func (s Set) first(mode v1alpha1.ModulePolicyMode, at *Place, where scope, why rule) *reasons.Problem {
	if all := s.all(mode, at, where, why); len(all) > 0 {
		return &reasons.Problem{Reason: v1beta1.ReasonPolicyDenied, Message: all[0]}
	}
	return nil
}

// all are the reasons of the policies that are in force there, by name.
func (s Set) all(mode v1alpha1.ModulePolicyMode, at *Place, where scope, why rule) (all []string) {
	for i := range s.policies {
		if p := &s.policies[i]; p.Spec.Mode == mode && chooses(p, at, where) {
			all = append(all, why(p)...)
		}
	}
	return all
}

func chooses(p *v1alpha1.ModulePolicy, at *Place, where scope) bool {
	return Selects(p.Spec.NamespaceSelector, at.Namespace) && (where == inTheWhole || Selects(p.Spec.NodeSelector, at.Node))
}

// Selects reports whether all that a selector says of labels is true.
func Selects(s *v1alpha1.ModulePolicySelector, labels map[string]string) bool {
	if s == nil {
		return true
	}
	for key, value := range s.MatchLabels {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	for i := range s.MatchExpressions {
		if !holds(&s.MatchExpressions[i], labels) {
			return false
		}
	}
	return true
}

func holds(r *v1alpha1.ModulePolicyRequirement, labels map[string]string) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpExists:
		return has
	case metav1.LabelSelectorOpDoesNotExist:
		return !has
	}
	return true // the definition has no other: who limits by what is unknown limits
}

// Fields of a Module that messages name.
const (
	fieldLoader     = "spec.moduleLoader"
	fieldContainer  = fieldLoader + ".container"
	fieldImage      = fieldContainer + ".kernelMappings"
	fieldModprobe   = fieldContainer + ".modprobe"
	fieldParameters = fieldModprobe + ".parameters"
	fieldFirmware   = fieldModprobe + ".firmwarePath"
	fieldDrain      = "spec.rollout.drain"
)

// says is a message about a Module's field.
func says(p *v1alpha1.ModulePolicy, field, format string, args ...any) string {
	return fmt.Sprintf("%s: ModulePolicy %s %s", field, p.Name, fmt.Sprintf(format, args...))
}

// deny are the reasons for which a policy does not allow the wish; none: it does.
func deny(p *v1alpha1.ModulePolicy, w *Wish, at *Place) (why []string) {
	modprobe := &w.Config.Modprobe
	says := func(field, format string, args ...any) { why = append(why, says(p, field, format, args...)) }
	if p.Spec.Load == v1alpha1.Deny {
		says(fieldLoader, "lets no Module of namespace %s load anything here", at.Name)
	}
	if w.Builds && p.Spec.Build == v1alpha1.Deny {
		says(fieldContainer+".build", "allows no image that is built in the cluster")
	}
	if DeniesArgs(&p.Spec) && (given(modprobe.Args) || given(modprobe.RawArgs)) {
		says(fieldModprobe, "allows no args and no rawArgs")
	}
	if name, ok := stranger(p.Spec.Modules, named(w.Config), plain); !ok {
		says(fieldModprobe, "does not allow the kernel module %q", name)
	}
	if only := p.Spec.Parameters; only != nil {
		if text, ok := strange(only.Only, modprobe.Parameters); !ok {
			says(fieldParameters, "does not allow the parameter %q", text)
		}
	}
	if image, ok := stranger(p.Spec.Images, images(w), nil); !ok {
		says(fieldImage, "does not allow the image %s", image)
	}
	if modprobe.FirmwarePath != "" && p.Spec.Firmware != v1alpha1.Allow {
		says(fieldFirmware, "allows no firmware")
	}
	if !drains(&p.Spec, w.Drain) {
		says(fieldDrain, "does not allow %s", w.Drain)
	}
	return why
}

// drains reports whether a policy allows a drain. Each allows those that evict less.
func drains(s *v1alpha1.ModulePolicySpec, drain v1beta1.DrainPolicy) bool {
	evicts := map[v1beta1.DrainPolicy]int{v1beta1.DrainHolders: 1, v1beta1.DrainNode: 2}
	return evicts[drain] <= evicts[s.Drain]
}

// Drains reports whether the policies that are enforced there allow a drain. A Module from before a
// policy has its orders carried out, but evicts no more than the policy allows.
func (s Set) Drains(drain v1beta1.DrainPolicy, at *Place) bool {
	return s.first(v1alpha1.PolicyEnforce, at, onNode, func(p *v1alpha1.ModulePolicy) []string {
		if drains(&p.Spec, drain) {
			return nil
		}
		return []string{fieldDrain}
	}) == nil
}

// DeniesArgs reports whether a policy denies modprobe's arguments, which can name any kernel
// module, any parameter and any file that the agent sees.
func DeniesArgs(s *v1alpha1.ModulePolicySpec) bool { return s.ModprobeArgs != v1alpha1.Allow }

func given(args *v1beta1.ModprobeArgs) bool {
	return args != nil && len(args.Load)+len(args.Unload) > 0
}

// named are the kernel modules that a node is told to load, or to remove first.
func named(c *v1beta1.ModuleConfig) []string {
	all := slices.Concat([]string{c.Modprobe.ModuleName}, c.Modprobe.ModulesLoadingOrder,
		c.InTreeModulesToRemove, []string{c.InTreeModuleToRemove})
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

func images(w *Wish) []string {
	all := []string{w.Config.ContainerImage, w.Unsigned}
	return slices.DeleteFunc(all, func(image string) bool { return image == "" })
}

// plain is a kernel module's name as the kernel compares it.
func plain(name string) string { return strings.ReplaceAll(name, "-", "_") }

// stranger is the first text that no pattern allows; true: there is none, or patterns are nil.
func stranger(patterns, texts []string, normal func(string) string) (string, bool) {
	if patterns == nil {
		return "", true
	}
	if normal == nil {
		normal = func(text string) string { return text }
	}
	for _, text := range texts {
		if !slices.ContainsFunc(patterns, func(p string) bool { return Matches(normal(p), normal(text)) }) {
			return text, false
		}
	}
	return "", true
}

// Matches reports whether a pattern is the text or, if it ends with *, its beginning.
func Matches(pattern, text string) bool {
	if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, beginning)
	}
	return pattern == text
}

// one is a text that the kernel takes as one parameter: it ends a parameter at a blank that is not
// within quotes, and the agent quotes a value without quotes. Blanks are bytes there, and some are
// in other characters. The admission policies have the same expression.
var one = regexp.MustCompile(`^[!#-<>-~]*(=[^"]*)?$`)

// strange is the first parameter that no pattern allows; true: there is none. A beginning must not
// allow what comes behind it as another parameter. The pattern * allows all.
func strange(patterns, parameters []string) (string, bool) {
	for _, text := range parameters {
		if !slices.ContainsFunc(patterns, func(p string) bool {
			return Matches(p, text) && (p == "*" || p == text || one.MatchString(text))
		}) {
			return text, false
		}
	}
	return "", true
}
