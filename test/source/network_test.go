// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drover-project/drover/hack/chart/tree"
)

// TestNothingIsReachedButMetrics: each Deployment of each way of installing has a NetworkPolicy
// that leaves its metrics' port open to connections, and no other.
func TestNothingIsReachedButMetrics(t *testing.T) {
	config, err := tree.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	deployments := 0
	for _, folder := range []string{
		"operator", "hub", "operators/deviceconfig/manager", "operators/ptemplate/manager", "operators/lolcow/manager",
	} {
		objects, err := config.Objects([]string{folder}, nil)
		if err != nil {
			t.Fatal(err)
		}
		policies := policiesOf(t, objects)
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			deployments++
			d := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
				t.Fatal(err)
			}
			if open := reached(t, d, policies); !slices.Equal(open, []string{"metrics"}) {
				t.Errorf("%s: %s: connections to %q are allowed, want metrics alone", folder, tree.Name(o), open)
			}
		}
	}
	if deployments != 5 {
		t.Errorf("%d Deployments were looked at", deployments)
	}
}

func policiesOf(t *testing.T, objects []*unstructured.Unstructured) []networkingv1.NetworkPolicy {
	t.Helper()
	var found []networkingv1.NetworkPolicy
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var p networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			t.Fatal(err)
		}
		found = append(found, p)
	}
	return found
}

// reached are the ports of a Deployment's pods to which connections are allowed, by what is allowed
// from everywhere; "*" is every port.
func reached(t *testing.T, d *appsv1.Deployment, policies []networkingv1.NetworkPolicy) []string {
	t.Helper()
	chosen := slices.DeleteFunc(slices.Clone(policies), func(p networkingv1.NetworkPolicy) bool {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		return p.Namespace != d.Namespace || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) ||
			!selector.Matches(labels.Set(d.Spec.Template.Labels))
	})
	if len(chosen) == 0 {
		return []string{"*"}
	}
	var open []string
	for _, p := range chosen {
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) == 0 {
				open = append(open, "*")
			}
			for _, port := range rule.Ports {
				named := func(c corev1.ContainerPort) bool { return c.Name == port.Port.String() }
				if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, named) {
					t.Errorf("%s: no container has the port %s", p.Name, port.Port)
				}
				open = append(open, port.Port.String())
			}
		}
	}
	return open
}
