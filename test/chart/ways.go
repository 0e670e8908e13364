// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/hack/chart/tree"
)

// objects by their names, as tree.Name tells them.
type objects map[string]*unstructured.Unstructured

// part is one kustomization: resources and components below config/.
type part struct{ resources, components []string }

// way is a way of installing: values of the chart, and the kustomizations that are the same.
type way struct {
	name, values string
	parts        []part
	// without are kinds that the values leave out.
	without []string
}

func resources(names ...string) part { return part{resources: names} }

func with(components ...string) part {
	return part{resources: []string{"default"}, components: components}
}

var (
	deviceconfig = resources("operators/deviceconfig/default")
	ptemplate    = resources("operators/ptemplate/default")
	lolcow       = resources("operators/lolcow/default")
	hub          = resources("hub")
)

// everything switches on all that can stand in one cluster.
const everything = `{hub: {enabled: true}, build: {enabled: true}, ooto: {enabled: true}, openshift: {enabled: true},
  nodeCondition: {enabled: true}, criticalQuota: {enabled: true}, noPtrace: {enabled: true}, blacklist: {enabled: true}, boot: {enabled: true},
  operators: {deviceconfig: {enabled: true}, ptemplate: {enabled: true}, lolcow: {enabled: true}}}`

var ways = []way{
	{name: "default", values: `{}`, parts: []part{resources("default")}},
	{name: "hub alone", values: `{cluster: {enabled: false}, hub: {enabled: true}}`, parts: []part{hub}},
	{name: "hub with nodes", values: `{hub: {enabled: true}}`, parts: []part{resources("default"), hub}},
	{name: "hub and spoke", values: `{hub: {enabled: true}, spoke: {enabled: true}}`, parts: []part{resources("spoke"), hub}},
	{name: "spoke", values: `{spoke: {enabled: true}}`, parts: []part{resources("spoke")}},
	{
		name: "spoke on OpenShift", values: `{spoke: {enabled: true}, openshift: {enabled: true}, boot: {enabled: true}}`,
		parts: []part{{
			resources:  []string{"spoke", "openshift/constraints.yaml", "openshift/roles.yaml"},
			components: []string{"boot"},
		}},
	},
	{name: "build", values: `{build: {enabled: true}}`, parts: []part{with("build")}},
	{name: "ooto", values: `{ooto: {enabled: true}}`, parts: []part{with("ooto")}},
	{name: "nodeCondition", values: `{nodeCondition: {enabled: true}}`, parts: []part{with("node-condition")}},
	{name: "criticalQuota", values: `{criticalQuota: {enabled: true}}`, parts: []part{with("critical-quota")}},
	{name: "boot", values: `{boot: {enabled: true}}`, parts: []part{with("boot")}},
	{name: "blacklist", values: `{blacklist: {enabled: true}}`, parts: []part{with("blacklist")}},
	{name: "noPtrace", values: `{noPtrace: {enabled: true}}`, parts: []part{with("no-ptrace")}},
	{name: "openshift", values: `{openshift: {enabled: true}}`, parts: []part{resources("openshift")}},
	{name: "deviceconfig", values: `{operators: {deviceconfig: {enabled: true}}}`, parts: []part{resources("default"), deviceconfig}},
	{name: "ptemplate", values: `{operators: {ptemplate: {enabled: true}}}`, parts: []part{resources("default"), ptemplate}},
	{
		name:   "monitoring",
		values: `{monitoring: {serviceMonitor: {enabled: true}, rules: {enabled: true}, dashboard: {enabled: true}}}`,
		parts:  []part{with("monitoring")},
	},
	{
		name: "lolcow alone", values: `{cluster: {enabled: false}, operators: {lolcow: {enabled: true}}}`,
		parts: []part{lolcow},
	},
	{
		name: "everything", values: everything,
		parts: []part{
			{resources: []string{"openshift"}, components: []string{"build", "ooto", "node-condition", "critical-quota", "no-ptrace",
				"blacklist", "boot"}},
			hub, deviceconfig, ptemplate, lolcow,
		},
	},
	{
		name: "without CRDs and namespaces", values: `{crds: {install: false}, namespace: {create: false}}`,
		parts: []part{resources("default")}, without: []string{"CustomResourceDefinition", "Namespace"},
	},
}

// kustomize are the objects of a way's kustomizations. What two of them have must be the same.
func (w way) kustomize(config *tree.Tree) (objects, error) {
	all := objects{}
	for _, p := range w.parts {
		list, err := config.Objects(p.resources, p.components)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			name := tree.Name(o)
			if slices.Contains(w.without, o.GetKind()) {
				continue
			}
			if known := all[name]; known != nil && !cmp.Equal(known.Object, o.Object) {
				return nil, fmt.Errorf("kustomizations make different things of %s", name)
			}
			all[name] = o
		}
	}
	if len(all) == 0 {
		return nil, errors.New("kustomize made nothing")
	}
	return all, nil
}

const (
	policy = "helm.sh/resource-policy"
	hook   = "helm.sh/hook"
)

// kept reports whether an uninstall must leave an object.
func kept(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Namespace" && o.GetName() == "drover-system"
}

// compare returns how the chart's objects differ from those of kustomize. What an uninstall must
// keep has Helm's annotation for that, and nothing else has one.
func compare(want, got objects) []string {
	var problems []string
	names := slices.Sorted(maps.Keys(want))
	for _, name := range names {
		o := got[name]
		if o == nil {
			problems = append(problems, name+": the chart has no such object")
			continue
		}
		o = o.DeepCopy()
		annotations := o.GetAnnotations()
		if has := annotations[policy] == "keep"; has != kept(o) {
			problems = append(problems, fmt.Sprintf("%s: is kept by an uninstall: %v", name, has))
		}
		delete(annotations, policy)
		if len(annotations) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		} else {
			o.SetAnnotations(annotations)
		}
		if diff := cmp.Diff(want[name].Object, o.Object); diff != "" {
			problems = append(problems, fmt.Sprintf("%s (-kustomize +chart):\n%s", name, diff))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == nil && got[name].GetAnnotations()[hook] == "" { // Helm alone has hooks
			problems = append(problems, name+": kustomize has no such object")
		}
	}
	return problems
}

// damage alters one object.
func (o objects) damage() {
	name := slices.Min(slices.Collect(maps.Keys(o)))
	labels := o[name].GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["app.kubernetes.io/part-of"] = "something-else"
	o[name].SetLabels(labels)
}
