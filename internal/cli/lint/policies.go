// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/words"
)

// maxNamed is how many nodes a line names.
const maxNamed = 3

// Refusal is what ModulePolicies do not allow a Module.
type Refusal struct {
	// Module as namespace/name.
	Module string `json:"module"`
	// Mode of the policy: Enforce denies it when it is new, Audit would.
	Mode v1alpha1.ModulePolicyMode `json:"mode"`
	// Message begins with the path of the Module's field, and names the policy.
	Message string `json:"message"`
	// Nodes where it is so; none: it belongs to no node.
	Nodes []string `json:"nodes,omitempty"`
}

// againstPolicies says what the cluster's ModulePolicies do not allow its Modules: what they would
// lose if it were new.
func (o *options) againstPolicies(ctx context.Context) error {
	client, err := cluster.Connect(o.flags)
	if err != nil {
		return err
	}
	namespace := ""
	if o.flags.Namespace != nil {
		namespace = *o.flags.Namespace
	}
	modules, err := client.ListModules(ctx, namespace, "")
	if err != nil {
		return err
	}
	set, labels, err := client.Policies(ctx)
	if err != nil {
		return err
	}
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	all := []Refusal{}
	for i := range modules {
		all = append(all, refusals(set, &modules[i], labels[modules[i].Namespace], nodes)...)
	}
	denied := slices.ContainsFunc(all, func(r Refusal) bool { return r.Mode == v1alpha1.PolicyEnforce })
	return o.format.Answer(o.Out, all, told(all, len(modules)), !denied)
}

// refusals are what the policies of both modes do not allow a Module, on the nodes that it selects.
func refusals(set modulepolicy.Set, m *v1beta1.Module, labels map[string]string, nodes []corev1.Node) []Refusal {
	var all []Refusal
	name := m.Namespace + "/" + m.Name
	for _, mode := range []v1alpha1.ModulePolicyMode{v1alpha1.PolicyEnforce, v1alpha1.PolicyAudit} {
		on := map[string][]string{}
		wants := desired.New(m)
		for i := range nodes {
			node := &nodes[i]
			at, err := kernel.PlatformOf(&node.Status.NodeInfo)
			if err != nil || !placement.Eligible(m, node) {
				continue // nothing is loaded where no kernel can be
			}
			answer := wants.On(at.Kernel, at.Architecture)
			if answer.State == nil {
				continue
			}
			wish := &modulepolicy.Wish{Config: &answer.State.Config}
			wish.Builds, wish.Unsigned = answer.Made()
			if r := m.Spec.Rollout; r != nil {
				wish.Drain = r.Drain
			}
			for _, message := range set.OnNode(mode, wish, &modulepolicy.Place{Name: m.Namespace, Namespace: labels, Node: node.Labels}) {
				on[message] = append(on[message], node.Name)
			}
		}
		for _, message := range slices.Sorted(maps.Keys(on)) {
			all = append(all, Refusal{name, mode, message, on[message]})
		}
		for _, message := range set.Whole(mode, m, labels) {
			all = append(all, Refusal{name, mode, message, nil})
		}
	}
	return all
}

// told are the refusals for people.
func told(all []Refusal, modules int) string {
	if len(all) == 0 {
		return "No ModulePolicy denies anything of " + words.Count(modules, "Module") + "\n"
	}
	var b strings.Builder
	for i, r := range all {
		if i == 0 || all[i-1].Module != r.Module {
			fmt.Fprintf(&b, "Module %s:\n", r.Module)
		}
		mark := "denied"
		if r.Mode == v1alpha1.PolicyAudit {
			mark = "would be denied"
		}
		where := ""
		if len(r.Nodes) > 0 {
			where = " (on " + words.List(r.Nodes, maxNamed) + ")"
		}
		fmt.Fprintf(&b, "  %s: %s%s\n", mark, r.Message, where)
	}
	b.WriteString("What stands goes on; new nodes, and changes of these fields, are denied\n")
	return b.String()
}
