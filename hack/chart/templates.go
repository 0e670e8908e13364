// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

// layer is a part of config/ that a value switches on.
type layer struct {
	// name is that of its template files.
	name string
	// on is the switch, as a template's condition.
	on string
	// resources and components are what kustomize renders, below config/.
	resources, components []string
	// over is the layer that this one contains and changes.
	over string
}

// layers, each after the one that it is over. Components that change nothing but workloads are
// missing here, since workloads are written by hand: blacklist, boot, no-ptrace.
var layers = []layer{
	{name: "cluster", on: ".Values.cluster.enabled", resources: []string{"default"}},
	{name: "spoke", on: ".Values.spoke.enabled", resources: []string{"spoke"}, over: "cluster"},
	{name: "ooto", on: ".Values.ooto.enabled", resources: []string{"default"}, components: []string{"ooto"}, over: "cluster"},
	{name: "build", on: ".Values.build.enabled", resources: []string{"default"}, components: []string{"build"}, over: "cluster"},
	{
		name: "node-condition", on: ".Values.nodeCondition.enabled", resources: []string{"default"}, components: []string{"node-condition"},
		over: "cluster",
	},
	{
		name: "critical-quota", on: ".Values.criticalQuota.enabled", resources: []string{"default"}, components: []string{"critical-quota"},
		over: "cluster",
	},
	{name: "openshift", on: ".Values.openshift.enabled", resources: []string{"openshift"}, over: "cluster"},
	{name: "hub", on: ".Values.hub.enabled", resources: []string{"hub"}},
	{name: "deviceconfig", on: ".Values.operators.deviceconfig.enabled", resources: []string{"operators/deviceconfig/default"}},
	{name: "ptemplate", on: ".Values.operators.ptemplate.enabled", resources: []string{"operators/ptemplate/default"}},
	{name: "lolcow", on: ".Values.operators.lolcow.enabled", resources: []string{"operators/lolcow/default"}},
	{
		name: "monitoring", on: monitoring("serviceMonitor"),
		resources: []string{"monitoring/service.yaml", "monitoring/service_monitor.yaml"},
	},
	{name: "monitoring", on: monitoring("rules"), resources: []string{"monitoring/rules.yaml"}},
	// What is left of the component is the dashboard.
	{
		name: "monitoring", on: monitoring("dashboard"), resources: []string{"default"}, components: []string{"monitoring"}, over: "cluster",
	},
}

// monitoring is a switch for something that watches the operator, and needs one.
func monitoring(part string) string {
	return "(and .Values.cluster.enabled .Values.monitoring." + part + ".enabled)"
}

// variant is what one or several layers make of an object.
type variant struct {
	text string
	// on are the switches, any of which brings it; off are those that bring another variant.
	on, off []string
}

// object is one of config/, in all its variants.
type object struct {
	name, kind, file string
	variants         []variant
}

// byHand reports whether the chart has a template of its own for an object: it has settings.
func byHand(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "Deployment", "DaemonSet", "NetworkPolicy":
		return true
	case "ConfigMap":
		return o.GetName() != "drover-dashboard"
	default:
		return o.GetKind() == "Namespace" && o.GetName() == "drover-system"
	}
}

// templates are the files of all objects that have no settings.
func templates(root string) (map[string]string, error) {
	config, err := tree.Read(root)
	if err != nil {
		return nil, err
	}
	all := map[string]*object{}
	for _, l := range layers {
		objects, err := config.Objects(l.resources, l.components)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if byHand(o) {
				continue
			}
			if err := collect(all, l, o); err != nil {
				return nil, fmt.Errorf("%s: %w", tree.Name(o), err)
			}
		}
	}
	files := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		path := generatedDir + "/" + o.file
		if files[path] == "" {
			files[path] = "{{/* Generated from config/ by hack/chart: make manifests */}}\n"
		}
		for _, v := range o.variants {
			files[path] += fmt.Sprintf("{{- if %s }}\n---\n%s{{- end }}\n", v.condition(o.kind), v.text)
		}
	}
	return files, nil
}

// collect notes what a layer makes of an object.
func collect(all map[string]*object, l layer, o *unstructured.Unstructured) error {
	name, kind := tree.Name(o), o.GetKind()
	if kind == "CustomResourceDefinition" {
		keep(o)
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	v := variant{text: strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`), on: []string{l.on}}
	known := all[name]
	if known == nil {
		all[name] = &object{name: name, kind: kind, file: l.file(kind), variants: []variant{v}}
		return nil
	}
	for i := range known.variants {
		if was := &known.variants[i]; was.text == v.text {
			if l.over == "" {
				was.on = append(was.on, l.on)
			}
			return nil
		}
	}
	if l.over == "" || len(known.variants) > 1 {
		return errors.New("two layers that may stand side by side make different things of it")
	}
	known.variants[0].off = append(known.variants[0].off, l.on)
	known.variants = append(known.variants, v)
	return nil
}

// keep has an uninstall leave a definition: with it, all objects of its kind would be deleted, and
// what they stand for unloaded.
func keep(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["helm.sh/resource-policy"] = "keep"
	o.SetAnnotations(annotations)
}

// file is the name of the template for a layer's objects of a kind.
func (l layer) file(kind string) string {
	sort, known := map[string]string{
		"CustomResourceDefinition": "crds", "ValidatingAdmissionPolicy": "policies", "ValidatingAdmissionPolicyBinding": "policies",
		"SecurityContextConstraints": "constraints", "Namespace": "namespace", "ResourceQuota": "quota",
		"Service": "services", "ServiceMonitor": "services", "PrometheusRule": "rules", "ConfigMap": "dashboard",
	}[kind]
	if !known {
		sort = "roles"
	}
	return l.name + "-" + sort + ".yaml"
}

// condition is that of a template's "if".
func (v variant) condition(kind string) string {
	terms := []string{strings.Join(v.on, " ")}
	if len(v.on) > 1 {
		terms[0] = "(or " + terms[0] + ")"
	}
	switch kind {
	case "CustomResourceDefinition":
		terms = append(terms, ".Values.crds.install")
	case "Namespace":
		terms = append(terms, ".Values.namespace.create")
	}
	for _, off := range v.off {
		terms = append(terms, "(not "+off+")")
	}
	if len(terms) == 1 {
		return strings.Trim(terms[0], "()")
	}
	return "and " + strings.Join(terms, " ")
}
