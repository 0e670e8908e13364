// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

// csv is the bundle's ClusterServiceVersion.
func (r release) csv(root string, p parts) (*unstructured.Unstructured, error) {
	csv, err := read(filepath.Join(root, templateFile))
	if err != nil {
		return nil, err
	}
	icon, err := os.ReadFile(filepath.Join(root, iconFile))
	if err != nil {
		return nil, fmt.Errorf("read the icon: %w", err)
	}
	shown, err := shownExamples(root)
	if err != nil {
		return nil, err
	}
	csv.SetName(packageName + "." + r.version)
	annotations := csv.GetAnnotations()
	annotations["alm-examples"], annotations["containerImage"] = shown, r.operator
	csv.SetAnnotations(annotations)
	owned, err := p.owned()
	if err != nil {
		return nil, err
	}
	spec, _ := csv.Object["spec"].(map[string]any)
	spec["version"] = strings.TrimPrefix(r.version, "v")
	spec["icon"] = []any{map[string]any{"base64data": base64.StdEncoding.EncodeToString(icon), "mediatype": "image/svg+xml"}}
	spec["customresourcedefinitions"] = map[string]any{"owned": owned}
	spec["relatedImages"] = []any{
		map[string]any{"name": "drover-operator", "image": r.operator}, map[string]any{"name": "drover-agent", "image": r.agent},
	}
	labels, _, err := unstructured.NestedMap(p.deployment.Object, "metadata", "labels")
	if err != nil {
		return nil, fmt.Errorf("read the operator's Deployment: %w", err)
	}
	spec["install"] = map[string]any{"strategy": "deployment", "spec": map[string]any{
		"deployments": []any{map[string]any{
			"name": p.deployment.GetName(), "label": labels, "spec": p.deployment.Object["spec"],
		}},
		"clusterPermissions": permissions(p.clusterRoles), "permissions": permissions(p.roles),
	}}
	return csv, nil
}

// permissions of the operator's ServiceAccount, all in one.
func permissions(roles []*unstructured.Unstructured) []any {
	var rules []any
	for _, role := range roles {
		some, _ := role.Object["rules"].([]any)
		rules = append(rules, some...)
	}
	return []any{map[string]any{"serviceAccountName": operator, "rules": rules}}
}

// owned are the kinds that come with the bundle, each version one.
func (p parts) owned() ([]any, error) {
	var owned []any
	for _, o := range p.manifests {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", tree.Name(o), err)
		}
		for _, v := range definition.Spec.Versions {
			if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || v.Schema.OpenAPIV3Schema.Description == "" {
				return nil, fmt.Errorf("%s: version %s does not say what it is", tree.Name(o), v.Name)
			}
			owned = append(owned, map[string]any{
				"name": definition.Name, "version": v.Name, "kind": definition.Spec.Names.Kind, "displayName": definition.Spec.Names.Kind,
				"description": strings.Join(strings.Fields(v.Schema.OpenAPIV3Schema.Description), " "),
			})
		}
	}
	return owned, nil
}

// shownExamples are a JSON list.
func shownExamples(root string) (string, error) {
	var all []any
	for _, path := range examples {
		o, err := read(filepath.Join(root, path))
		if err != nil {
			return "", err
		}
		all = append(all, o.Object)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write the examples: %w", err)
	}
	return string(text), nil
}

func read(path string) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(content, &o.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return o, nil
}
