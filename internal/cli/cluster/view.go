// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

// ViewerRole is the ClusterRole that shows everything about nodes that the commands can show.
const ViewerRole = "drover-module-viewer"

// agentLabel is what config/agent puts on the agent's pods.
const agentLabel = "app.kubernetes.io/name=drover-agent"

// Missing is a right that the user lacks, as a rule would say it.
type Missing struct {
	Right string `json:"right"`
	Shows string `json:"shows"` // what it would show
	// Role that gives it.
	Role string `json:"role"`
}

// View is all that a user may see of nodes and what is on them.
type View struct {
	// Nodes asked for; NodesSeen is false when the user may not see nodes. Likewise for the others.
	Nodes     []corev1.Node
	NodesSeen bool
	// Configs by name.
	Configs     map[string]*v1beta1.NodeModulesConfig
	ConfigsSeen bool
	// Pods of the Modules' namespace.
	Pods       []corev1.Pod
	PodsSeen   bool
	Agents     []corev1.Pod // the pods of the node's agent, after SeeAgent
	AgentsSeen bool
	// Images that are made in the cluster in the Modules' namespace, as far as the user may see them.
	Images []v1alpha1.ModuleImage
	// Policies of the cluster, and the labels of the Modules' namespace, after SeePolicies.
	Policies        modulepolicy.Set
	NamespaceLabels map[string]string
	Now             time.Time
	// Missing rights, in the order in which they matter.
	Missing []Missing
}

// Whole reports whether enough is seen to judge single nodes.
func (v *View) Whole() bool { return v.NodesSeen && v.ConfigsSeen }

// View reads one node or, with "", all; and the pods of one Module, or of all in the namespace.
func (c *Client) View(ctx context.Context, now time.Time, node, namespace, module string) (v *View, err error) {
	v = &View{Now: now}
	if node == "" {
		v.Nodes, err = c.Nodes(ctx)
	} else {
		v.Nodes, err = c.node(ctx, node)
	}
	v.NodesSeen, err = v.seen(err, "get, list on nodes (cluster-wide)", "which nodes are selected, and their kernels, taints and labels",
		ViewerRole)
	if err != nil {
		return nil, err
	}
	v.Configs, err = c.configs(ctx)
	v.ConfigsSeen, err = v.seen(err, "list on nodemodulesconfigs."+v1beta1.GroupVersion.Group+" (cluster-wide)",
		"what each node's kernel holds, and what failed there", ViewerRole)
	if err != nil {
		return nil, err
	}
	where, selector := "in namespace "+namespace, v1beta1.ModuleNameLabel
	if namespace == "" {
		where = "(cluster-wide)"
	}
	if module != "" {
		selector += "=" + module
	}
	if v.Pods, err = c.pods(ctx, namespace, selector); err != nil {
		err = fmt.Errorf("list pods in namespace %s: %w", namespace, err)
	}
	v.PodsSeen, err = v.seen(err, "list on pods "+where, "the state of image deliveries and device plugins", "view")
	if err != nil {
		return nil, err
	}
	v.Images, err = c.images(ctx, namespace, selector)
	_, err = v.seen(err, "list on moduleimages."+v1alpha1.GroupVersion.Group+" "+where,
		"the state of images that are built or signed in the cluster", ViewerRole)
	return v, err
}

// SeeAgent looks for the node's agent in all namespaces.
func (v *View) SeeAgent(ctx context.Context, c *Client, node string) error {
	all, err := c.pods(ctx, metav1.NamespaceAll, agentLabel)
	if err != nil {
		err = fmt.Errorf("list the agent's pods: %w", err)
	}
	v.AgentsSeen, err = v.seen(err, "list on pods (cluster-wide)", "why the node's agent does not answer", "view")
	v.Agents = slices.DeleteFunc(all, func(pod corev1.Pod) bool { return !meantFor(&pod, node) })
	return err
}

// meantFor reports whether a DaemonSet's pod is a node's; an unscheduled one has an affinity to it.
func meantFor(pod *corev1.Pod, node string) bool {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName == node
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && slices.Contains(field.Values, node) {
				return true
			}
		}
	}
	return false
}

// seen notes a missing right. Any other error stays one.
func (v *View) seen(err error, right, shows, role string) (bool, error) {
	if apierrors.IsForbidden(err) {
		v.Missing = append(v.Missing, Missing{Right: right, Shows: shows, Role: role})
		return false, nil
	}
	return err == nil, err
}

// Scene is what is known about one Module, in the operator's own terms.
func (v *View) Scene(m *v1beta1.Module) *facts.Scene {
	carriers := map[string]reasons.Problem{}
	plugins := map[string]bool{}
	for i := range v.Pods {
		pod := &v.Pods[i]
		if pod.Namespace != m.Namespace || pod.Labels[v1beta1.ModuleNameLabel] != m.Name {
			continue
		}
		switch p := delivery.ProblemOf(pod); {
		case delivery.IsCarrier(pod) && p != nil:
			carriers[pod.Spec.NodeName] = *p
		case pod.Labels[v1beta1.RoleLabel] != "" && ready(pod):
			plugins[pod.Spec.NodeName] = true
		}
	}
	images := slices.DeleteFunc(slices.Clone(v.Images), func(image v1alpha1.ModuleImage) bool {
		return image.Namespace != m.Namespace || image.Labels[v1beta1.ModuleNameLabel] != m.Name
	})
	unmade := facts.Problem(m, v1beta1.ProblemImages)
	return &facts.Scene{
		Module: m, Held: facts.Judge(m, v.Fleet(), v.Configs), Configs: v.Configs,
		// Without any, and without a complaint, there may be nobody who makes them.
		Desired:    desired.New(m).With(desired.Images{Makes: len(images) > 0 || unmade != nil, Made: images, Problem: unmade}),
		Plugins:    plugins,
		Deliveries: facts.Deliveries(m, carriers),
		Taints:     v.unloadTaints(m),
		Silent:     m.DeletionTimestamp != nil && v.Now.After(m.DeletionTimestamp.Add(status.Silence)),
	}
}

// unloadTaints are the taints that ask for an unload, as far as orders tell: the operator's flags
// are not read.
func (v *View) unloadTaints(m *v1beta1.Module) placement.UnloadTaints {
	var keys placement.UnloadTaints
	for i := range v.Nodes {
		node := &v.Nodes[i]
		o := status.EntryOf(v.Configs[node.Name], m.Namespace, m.Name).Order
		taint := placement.Untolerated(placement.Tolerations(m), node)
		if o == nil || o.Reason != v1beta1.ReasonTainted || taint == nil {
			continue
		}
		if only := (placement.UnloadTaints{taint.Key}); only.KeepOut(m, node) { // else it may be another one
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

// Fleet is all nodes, as the facts ask for them.
func (v *View) Fleet() []*corev1.Node {
	nodes := make([]*corev1.Node, len(v.Nodes))
	for i := range v.Nodes {
		nodes[i] = &v.Nodes[i]
	}
	return nodes
}

// About is what is known of the Module and all its nodes.
func (v *View) About(m *v1beta1.Module) *status.Module {
	about := facts.Of(m)
	v.Scene(m).See(&about, v.Fleet(), v.Now)
	return &about
}

// Carrier is a Module's carrier pod for a node, unless it is being deleted; or nil.
func (v *View) Carrier(m *v1beta1.Module, node string) *corev1.Pod {
	for i := range v.Pods {
		pod := &v.Pods[i]
		if pod.Namespace == m.Namespace && pod.Labels[v1beta1.ModuleNameLabel] == m.Name && pod.Spec.NodeName == node &&
			delivery.IsCarrier(pod) && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Tell says what the user may not see, and which role would change that; empty: nothing.
func Tell(missing []Missing) string {
	if len(missing) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nYou may not see everything:\n")
	for _, m := range missing {
		fmt.Fprintf(&b, "  %s\n    would show %s; ClusterRole %s gives it\n", m.Right, m.Shows, m.Role)
	}
	return b.String()
}
