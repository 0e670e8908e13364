// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/hack/chart/tree"
)

// operator is the name of the Deployment, its ServiceAccount and its ClusterRole.
const operator = "drover-operator"

// parts are the objects of config/default by how they get into a cluster.
type parts struct {
	// deployment is the operator's; roles and clusterRoles are what its ServiceAccount is bound to.
	// They become parts of the ClusterServiceVersion, from which the Operator Lifecycle Manager makes
	// the ServiceAccount and the bindings, too.
	deployment          *unstructured.Unstructured
	roles, clusterRoles []*unstructured.Unstructured
	// manifests, definitions and others, are in the bundle as they are, without their namespace: it is
	// the operator's.
	manifests []*unstructured.Unstructured
	// rest are of kinds that a bundle cannot hold.
	rest []*unstructured.Unstructured
}

// carried are the kinds of config/default that a bundle may hold beside the ClusterServiceVersion.
// The Operator Lifecycle Manager ignores or refuses others.
var carried = map[string]bool{
	"CustomResourceDefinition": true, "ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true,
	"ServiceAccount": true, "ConfigMap": true, "Service": true, "Secret": true, "PriorityClass": true, "PodDisruptionBudget": true,
}

// known are those that it cannot hold. A kind in neither list is an error: a maintainer must look
// up whether a bundle can hold it.
var known = map[string]bool{
	"Namespace": true, "DaemonSet": true, "NetworkPolicy": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

// split tells the objects apart.
func split(objects []*unstructured.Unstructured) (parts, error) {
	granted, err := grants(objects)
	if err != nil {
		return parts{}, err
	}
	var p parts
	for _, o := range objects {
		kind, key := o.GetKind(), o.GetKind()+" "+o.GetName()
		switch {
		case key == "Deployment "+operator:
			p.deployment = o
		case key == "ServiceAccount "+operator, granted[key] && (kind == "ClusterRoleBinding" || kind == "RoleBinding"):
			// Made from the ClusterServiceVersion.
		case granted[key] && kind == "ClusterRole":
			p.clusterRoles = append(p.clusterRoles, o)
		case granted[key] && kind == "Role":
			p.roles = append(p.roles, o)
		case carried[kind]:
			o = o.DeepCopy()
			unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
			p.manifests = append(p.manifests, o)
		case known[kind]:
			p.rest = append(p.rest, o)
		default:
			return parts{}, fmt.Errorf("%s: its kind is in neither list of hack/bundle/split.go, carried or known", tree.Name(o))
		}
	}
	if p.deployment == nil || len(p.clusterRoles) == 0 {
		return parts{}, fmt.Errorf("config/default has no Deployment %s, or no role for it", operator)
	}
	return p, nil
}

// grants are the bindings to the operator's ServiceAccount alone, and their roles, each as kind and
// name.
func grants(objects []*unstructured.Unstructured) (map[string]bool, error) {
	granted := map[string]bool{}
	for _, o := range objects {
		subjects, found, err := unstructured.NestedSlice(o.Object, "subjects")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tree.Name(o), err)
		}
		if !found {
			continue
		}
		ours := false
		for _, s := range subjects {
			subject, ok := s.(map[string]any)
			ours = ours || ok && subject["kind"] == "ServiceAccount" && subject["name"] == operator
		}
		if !ours {
			continue
		}
		if len(subjects) > 1 {
			return nil, fmt.Errorf("%s: binds others beside the operator", tree.Name(o))
		}
		kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		granted[o.GetKind()+" "+o.GetName()], granted[kind+" "+name] = true, true
	}
	return granted, nil
}
