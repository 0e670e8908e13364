// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// nodeSelector says which nodes a Job's pod may run on. Root on such a node reads each Secret that
// the pod mounts, and decides what the Job makes or finds. So only those count that are named for
// it: by build.selector and sign.selector, else by the operator's --job-selector, else by the
// Module's own selector, as in KMM. What is examined without any Secret may run anywhere, since a
// Module that has no nodes yet is examined, too.
func nodeSelector(spec *v1alpha1.ModuleImageSpec, o *Options) map[string]string {
	all := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: spec.Architecture}
	own := map[string]string{}
	if spec.Build != nil {
		maps.Copy(own, spec.Build.Selector)
	}
	if spec.Sign != nil {
		maps.Copy(own, spec.Sign.Selector)
	}
	switch {
	case len(own) > 0:
		maps.Copy(all, own)
	case len(o.Selector) > 0:
		maps.Copy(all, o.Selector)
	case made(spec) || len(pullSecrets(spec, o)) > 0:
		maps.Copy(all, spec.Selector)
	}
	return all
}

// agree refuses a build and a signature that no node can have, since one pod does both.
func agree(build *v1alpha1.ImageBuild, sign *v1alpha1.ImageSign) error {
	if build == nil || sign == nil {
		return nil
	}
	for _, label := range slices.Sorted(maps.Keys(sign.Selector)) {
		if other, ok := build.Selector[label]; ok && other != sign.Selector[label] {
			return fmt.Errorf("sign.selector wants %s=%s and build.selector %s=%s, which no node has both: one Job builds and signs, so "+
				"remove the label from one of them", label, sign.Selector[label], label, other)
		}
	}
	return nil
}

// homeless says that no node takes a Job's pod. The scheduler's own message counts nodes, and would
// change all the time.
func homeless(pod string, selector map[string]string) string {
	return fmt.Sprintf("no node takes its pod, which needs one with the labels %s: label a node so, or choose other nodes with "+
		"build.selector or sign.selector; if there is such a node, see kubectl describe pod %s", labels.Set(selector), pod)
}

// ReadsImages reports whether a step of the Job reads the content of another image.
func ReadsImages(spec *v1alpha1.ModuleImageSpec) bool {
	return spec.Build != nil && spec.Build.Native != nil && (spec.Build.Native.HeadersImage != "" || spec.Build.Native.SourceImage != "")
}

// MountsImages reports whether a Job's pod may have image volumes: only if every node that it may
// run on can mount them, because the scheduler does not check. Without such a node it may not: an
// API server without image volumes silently drops them.
func MountsImages(spec *v1alpha1.ModuleImageSpec, o *Options, nodes []corev1.Node) bool {
	if !ReadsImages(spec) {
		return false
	}
	if o.Delivery != delivery.ModeAuto && o.Delivery != "" {
		return o.Delivery == delivery.ModeImageVolume
	}
	selector, found := labels.SelectorFromSet(nodeSelector(spec, o)), false
	for i := range nodes {
		if !selector.Matches(labels.Set(nodes[i].Labels)) {
			continue
		}
		if o.Delivery.For(&nodes[i].Status.NodeInfo) != delivery.ModeImageVolume {
			return false
		}
		found = true
	}
	return found
}
