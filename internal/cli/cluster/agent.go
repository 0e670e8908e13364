// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agentLabel is what config/agent puts on the agent's pods.
const agentLabel = "app.kubernetes.io/name=drover-agent"

// SeeAgent looks for the node's agent in all namespaces.
func (v *View) SeeAgent(ctx context.Context, c *Client, node string) error {
	all, err := pages(func(o metav1.ListOptions) ([]corev1.Pod, string, error) {
		o.LabelSelector = agentLabel
		l, err := c.Core.Pods(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return nil, "", err //nolint:wrapcheck // wrapped below
		}
		return l.Items, l.Continue, nil
	})
	if err != nil {
		err = fmt.Errorf("list the agent's pods: %w", err)
	}
	v.AgentsSeen, err = v.seen(err, Missing{Right: "list on pods (cluster-wide)", Shows: "why the node's agent does not answer", Role: "view"})
	for i := range all {
		if meantFor(&all[i], node) {
			v.Agents = append(v.Agents, all[i])
		}
	}
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
