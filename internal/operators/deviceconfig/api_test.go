// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
)

const manifests = "../../../config/operators/deviceconfig"

// TestAdmission: what a DeviceConfig may say, by the rules of its CustomResourceDefinition alone.
func TestAdmission(t *testing.T) {
	s := newScene(t)
	valid := map[string]any{"driverImage": "registry.example.com:5000/vendor/driver", "driverVersion": "1.0"}
	with := func(field string, value any) map[string]any {
		spec := maps.Clone(valid)
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
		return spec
	}
	for given, test := range map[string]struct {
		spec map[string]any
		then string // what the refusal says; "" is accepted
	}{
		"what is required":          {valid, ""},
		"no driverImage":            {with("driverImage", nil), "spec.driverImage: Required"},
		"an empty driverImage":      {with("driverImage", ""), "spec.driverImage"},
		"no driverVersion":          {with("driverVersion", nil), "spec.driverVersion: Required"},
		"an empty driverVersion":    {with("driverVersion", ""), "spec.driverVersion"},
		"an image without a domain": {with("driverImage", "driver"), ""},
		"an image of localhost":     {with("driverImage", "localhost/driver"), ""},
		"an image with a tag":       {with("driverImage", "registry.example.com/driver:1.0"), "neither a tag nor a digest"},
		"an image with a digest": {with("driverImage", "registry.example.com/driver@sha256:"+strings.Repeat("0", 64)),
			"neither a tag nor a digest"},
		"an image with a space":          {with("driverImage", "registry.example.com/my driver"), "name of an image's repository"},
		"an image in capitals":           {with("driverImage", "registry.example.com/Driver"), "name of an image's repository"},
		"an address in place of a name":  {with("driverImage", "https://registry.example.com/driver"), "name of an image's repository"},
		"a version with a plus sign":     {with("driverVersion", "1.0+build"), "part of an image's tag"},
		"a version that begins with -":   {with("driverVersion", "-1"), "part of an image's tag"},
		"the longest version":            {with("driverVersion", strings.Repeat("1", 63)), ""},
		"a longer one":                   {with("driverVersion", strings.Repeat("1", 64)), "spec.driverVersion"},
		"a regexp":                       {with("kernelRegexp", `^6\.(1|12)\..*`), ""},
		"a regexp that does not compile": {with("kernelRegexp", "(6"), "valid RE2"},
		"an empty nodeSelector":          {with("nodeSelector", map[string]any{}), ""},
		"a nodeSelector that is a list":  {with("nodeSelector", []any{"a"}), "spec.nodeSelector"},
		"a label that is a number":       {with("nodeSelector", map[string]any{"a": int64(1)}), "spec.nodeSelector"},
		"a module with a slash":          {with("moduleName", "drivers/x"), "spec.moduleName"},
		"a field that there is not":      {with("moduleNames", "x"), "unknown field"},
		"an unset plugin":                {with("devicePluginImage", ""), ""},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": test.spec}}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DeviceConfig"))
		object.SetNamespace(s.namespace)
		object.SetName("d")
		err := s.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict"))
		switch {
		case test.then == "" && err != nil:
			t.Errorf("%s: %v", given, err)
		case test.then != "" && (!apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.then)):
			t.Errorf("%s: %v does not say %q", given, err, test.then)
		}
	}
}

// TestDefaultsAreSeen: they stand in the stored object, and are those that Go programs read.
func TestDefaultsAreSeen(t *testing.T) {
	s := newScene(t)
	d := s.deviceConfig("d", "a")
	d.Spec.NodeSelector = nil
	s.must(s.admin.Create(t.Context(), d, client.DryRunAll))
	want := v1alpha1.DeviceConfigSpec{
		DriverImage: d.Spec.DriverImage, DriverVersion: "1.0", NodeSelector: map[string]string{v1alpha1.DefaultNodeLabel: "true"},
		ModuleName: v1alpha1.DefaultModuleName, KernelRegexp: v1alpha1.DefaultKernelRegexp,
	}
	if diff := cmp.Diff(want, d.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// TestDefinition: what no admission shows, and what kubectl explain reads.
func TestDefinition(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(manifests, "crd", "example.com_deviceconfigs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &crd); err != nil {
		t.Fatal(err)
	}
	version := crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	spec, status := schema.Properties["spec"], schema.Properties["status"]
	conditions := status.Properties["conditions"]
	selector := spec.Properties["nodeSelector"]
	if crd.Spec.Scope != apiextensionsv1.NamespaceScoped || version.Subresources == nil || version.Subresources.Status == nil {
		t.Errorf("scope %s, subresources %+v", crd.Spec.Scope, version.Subresources)
	}
	if len(status.Required) > 0 || conditions.XListType == nil || *conditions.XListType != "map" ||
		!slices.Equal(conditions.XListMapKeys, []string{"type"}) {
		t.Errorf("status requires %v; conditions are a list of type %v by %v", status.Required, conditions.XListType, conditions.XListMapKeys)
	}
	if !slices.Equal(spec.Required, []string{"driverImage", "driverVersion"}) || selector.Type != "object" ||
		selector.AdditionalProperties.Schema.Type != "string" {
		t.Errorf("spec requires %v; nodeSelector is %+v", spec.Required, selector)
	}
	for name, field := range spec.Properties {
		if !strings.HasPrefix(field.Description, name) {
			t.Errorf("the description of %s: %q", name, field.Description)
		}
	}
	if len(version.AdditionalPrinterColumns) < 5 {
		t.Errorf("columns %+v", version.AdditionalPrinterColumns)
	}
}

// TestSamples: the API server takes them under strict validation, and the folder's kustomization
// lists them.
func TestSamples(t *testing.T) {
	s := newScene(t)
	var kustomization struct{ Resources []string }
	content, err := os.ReadFile(filepath.Join(manifests, "samples", "kustomization.yaml"))
	s.must(err)
	s.must(yaml.Unmarshal(content, &kustomization))
	files, err := filepath.Glob(filepath.Join(manifests, "samples", "deviceconfig_*.yaml"))
	s.must(err)
	if len(files) != len(kustomization.Resources) || len(files) < 2 {
		t.Errorf("files %v, listed %v", files, kustomization.Resources)
	}
	configs := 0
	for _, file := range files {
		content, err := os.Open(file)
		s.must(err)
		decoder := utilyaml.NewYAMLOrJSONDecoder(content, 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			}
			s.must(err)
			object.SetNamespace(s.namespace)
			if err := s.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if object.GetKind() == "DeviceConfig" {
				configs++
			}
		}
		s.must(content.Close())
	}
	if configs != len(files) {
		t.Errorf("%d DeviceConfigs in %d files", configs, len(files))
	}
}

// TestRole: the operator has the rights on Modules that the authoring guide names, and none on
// workloads or Secrets.
func TestRole(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(manifests, "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role struct {
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	if err := yaml.Unmarshal(content, &role); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			got[rule.APIGroups[0]+"/"+resource] = strings.Join(rule.Verbs, " ")
		}
	}
	want := map[string]string{
		"kmm.sigs.x-k8s.io/modules": "create delete get list patch update watch",
		"/serviceaccounts":          "create delete get list patch watch",
		"/nodes":                    "get list watch",
		"events.k8s.io/events":      "create patch",
		"example.com/deviceconfigs": "get list patch watch", "example.com/deviceconfigs/status": "patch",
		"example.com/deviceconfigs/finalizers":           "update",
		"apiextensions.k8s.io/customresourcedefinitions": "get",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}
