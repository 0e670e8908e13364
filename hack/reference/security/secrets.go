// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// secrets lists which Secrets each pod has, and the nodes whose root can read them.
func (w *writer) secrets(layers ...string) (string, error) {
	var pods []named
	for _, layer := range layers {
		installed, err := w.workloads(layer, "")
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(installed)) {
			pods = append(pods, named{name, installed[name]})
		}
	}
	made, err := rendered(w.root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range append(pods, made...) {
		names := secretsOf(p.pod)
		if len(names) == 0 {
			continue
		}
		nodes := seenBy(p.pod)
		if nodes == "" {
			return "", fmt.Errorf("%s has Secrets (%s) and may run on any node: give its pods a node selector", p.name,
				strings.Join(names, ", "))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.name, strings.Join(names, ", "), nodes)
	}
	return b.String(), nil
}

// secretsOf are the names of the Secrets that reach a pod's node: mounted, in the environment, or
// to pull its images with.
func secretsOf(pod *corev1.PodSpec) []string {
	names := map[string]bool{}
	for i := range pod.Volumes {
		switch v := &pod.Volumes[i]; {
		case v.Secret != nil:
			names[v.Secret.SecretName] = true
		case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
			names[v.CSI.NodePublishSecretRef.Name] = true
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					names[source.Secret.Name] = true
				}
			}
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil {
				names[from.SecretRef.Name] = true
			}
		}
		for _, variable := range c.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
				names[variable.ValueFrom.SecretKeyRef.Name] = true
			}
		}
	}
	for _, secret := range pod.ImagePullSecrets {
		names[secret.Name] = true
	}
	all := slices.Sorted(maps.Keys(names))
	for i, name := range all {
		all[i] = "`" + name + "`"
	}
	return all
}

// ofAnyNode are labels that most nodes have: they keep no Secret from any.
var ofAnyNode = []string{corev1.LabelOSStable, corev1.LabelArchStable}

// seenBy says which nodes a pod is kept to; empty: it may run anywhere.
func seenBy(pod *corev1.PodSpec) string {
	if pod.NodeName != "" {
		return "the node it is made for, which the Module selects"
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		if !slices.Contains(ofAnyNode, label) {
			labels = append(labels, strings.TrimSuffix("`"+label+"="+pod.NodeSelector[label], "=")+"`")
		}
	}
	if len(labels) == 0 {
		return ""
	}
	return "those with " + strings.Join(labels, ", ")
}
