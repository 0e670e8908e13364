// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/status"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// reasonReady is why the condition is true.
	reasonReady = "AllReady"
	// reasonNotReady is why it is false, where Modules have no reason, or several.
	reasonNotReady = "NotReady"
	// named is how many Modules a message names.
	named = 5
)

// lack is a Module that is not usable on a node where it belongs, with the reason if there is one.
type lack struct{ module, reason string }

// judge computes a node's condition; nil: no Module belongs on the node. It says nothing that
// changes while a Module waits, so that it costs no writes.
func judge(
	node *corev1.Node, config *v1beta1.NodeModulesConfig, modules []v1beta1.Module, taints placement.UnloadTaints,
) *corev1.NodeCondition {
	wanted := 0
	var lacks []lack
	for i := range modules {
		m := &modules[i]
		if m.Spec.ModuleLoader == nil || m.DeletionTimestamp != nil {
			continue
		}
		entry := status.EntryOf(config, m.Namespace, m.Name)
		if !taints.Wanted(m, node, entry.Pending()) {
			continue
		}
		wanted++
		if entry.Usable(node) {
			continue
		}
		l := lack{module: m.Namespace + "/" + m.Name}
		if entry.Attempt != nil && entry.Attempt.State != v1beta1.AttemptAbsent && entry.Attempt.Reason != v1beta1.ReasonAwaitingDelivery {
			l.reason = entry.Attempt.Reason
		}
		lacks = append(lacks, l)
	}
	if wanted == 0 {
		return nil
	}
	return said(wanted, lacks)
}

// said puts it into words.
func said(wanted int, lacks []lack) *corev1.NodeCondition {
	c := &corev1.NodeCondition{Type: v1beta1.NodeConditionKernelModules, Status: corev1.ConditionTrue, Reason: reasonReady,
		Message: "Ready: " + words.Count(wanted, "Module")}
	if len(lacks) == 0 {
		return c
	}
	slices.SortFunc(lacks, func(a, b lack) int { return strings.Compare(a.module, b.module) })
	c.Status, c.Reason = corev1.ConditionFalse, lacks[0].reason
	var names []string
	for i, l := range lacks {
		if l.reason != c.Reason {
			c.Reason = reasonNotReady
		}
		if i >= named {
			continue
		}
		name := l.module
		if l.reason != "" {
			name += " (" + l.reason + ")"
		}
		names = append(names, name)
	}
	if c.Reason == "" {
		c.Reason = reasonNotReady
	}
	if more := len(lacks) - named; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	c.Message = fmt.Sprintf("Not ready: %d of %s: %s", len(lacks), words.Count(wanted, "Module"), strings.Join(names, ", "))
	return c
}

// Removal is the strategic merge patch that takes the condition off a node's status; nil: it has
// none.
func Removal(node *corev1.Node) ([]byte, error) { return patchOf(node, nil, metav1.Time{}) }

// patchOf is a strategic merge patch of a Node's status that makes the condition what it should be
// and leaves all others; nil: it is so. It fails on another node of the name.
func patchOf(node *corev1.Node, want *corev1.NodeCondition, now metav1.Time) ([]byte, error) {
	have := nodemarks.Condition(node)
	var change any
	switch {
	case have == nil && want == nil:
		return nil, nil
	case want == nil:
		change = map[string]any{"$patch": "delete", "type": v1beta1.NodeConditionKernelModules}
	case have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message:
		return nil, nil
	default:
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		if have != nil && have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		change = want
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"conditions": []any{change}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the patch of a condition: %w", err)
	}
	return patch, nil
}
