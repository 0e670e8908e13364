// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Changed are the Modules whose part of a node's NodeModulesConfig differs between before and now,
// either of which may be nil. The value is false if only the node's own status names the Module.
func Changed(before, now *v1beta1.NodeModulesConfig) map[types.NamespacedName]bool {
	was, is := partsOf(before), partsOf(now)
	all := before == nil || now == nil || !sameObject(before, now)
	changed := map[types.NamespacedName]bool{}
	note := func(key types.NamespacedName) {
		a, b := was[key], is[key]
		if all || !a.same(b) {
			changed[key] = a.order != nil || b.order != nil
		}
	}
	for key := range was {
		note(key)
	}
	for key := range is {
		note(key)
	}
	return changed
}

type part struct {
	order   *v1beta1.NodeModuleSpec
	live    *v1beta1.NodeModuleStatus
	attempt *v1beta1.NodeModuleAttempt
	// held are the artifacts that the order names; inUse and configured, the order's labels.
	held              []v1beta1.NodeArtifact
	inUse, configured bool
}

func (p part) same(o part) bool {
	return p.inUse == o.inUse && p.configured == o.configured && slices.Equal(p.held, o.held) &&
		equality.Semantic.DeepEqual(p.order, o.order) && equality.Semantic.DeepEqual(p.live, o.live) &&
		equality.Semantic.DeepEqual(p.attempt, o.attempt)
}

func partsOf(config *v1beta1.NodeModulesConfig) map[types.NamespacedName]part {
	if config == nil {
		return nil
	}
	parts := make(map[types.NamespacedName]part, len(config.Spec.Modules))
	change := func(namespace, name string, edit func(*part)) {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		p := parts[key]
		edit(&p)
		parts[key] = p
	}
	for i := range config.Spec.Modules {
		order := &config.Spec.Modules[i]
		change(order.Namespace, order.Name, func(p *part) {
			p.order, p.held = order, heldFor(config, order)
			_, p.inUse = config.Labels[v1beta1.InUseLabel(order.Namespace, order.Name)]
			_, p.configured = config.Labels[v1beta1.ConfiguredLabel(order.Namespace, order.Name)]
		})
	}
	for i := range config.Status.Modules {
		live := &config.Status.Modules[i]
		change(live.Namespace, live.Name, func(p *part) { p.live = live })
	}
	for i := range config.Status.Attempts {
		attempt := &config.Status.Attempts[i]
		change(attempt.Namespace, attempt.Name, func(p *part) { p.attempt = attempt })
	}
	return parts
}

func heldFor(config *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec) []v1beta1.NodeArtifact {
	var held []v1beta1.NodeArtifact
	for _, d := range []*v1beta1.Delivery{order.Delivery, order.Next} {
		if d == nil {
			continue
		}
		if i := slices.IndexFunc(config.Status.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == d.ID }); i >= 0 {
			held = append(held, config.Status.Artifacts[i])
		}
	}
	return held
}

// sameObject reports whether what concerns all Modules is the same.
func sameObject(a, b *v1beta1.NodeModulesConfig) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}
