// SPDX-License-Identifier: Apache-2.0

package ptemplate_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/internal/operators/ptemplate"
)

// TestWhatMakesNoSenseIsRefused by the API server, before the operator sees it, with a message that
// says what is wrong.
func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("m", 101)
	for name, c := range map[string]struct {
		field []string
		value any // nil: taken out
		want  string
	}{
		"the sample":          {[]string{"spec", "maxdev"}, int64(5), ""},
		"the fewest devices":  {[]string{"spec", "maxdev"}, int64(2), ""},
		"no device":           {[]string{"spec", "maxdev"}, int64(0), "greater than or equal to 1"},
		"too many devices":    {[]string{"spec", "maxdev"}, int64(6), "less than or equal to 5"},
		"all devices":         {[]string{"spec", "requiredDevices"}, int64(5), ""},
		"more than there are": {[]string{"spec", "maxdev"}, int64(1), "requiredDevices must not be more than maxdev"},
		"none required":       {[]string{"spec", "requiredDevices"}, int64(0), "greater than or equal to 1"},
		"a blank":             {[]string{"spec", "defaultmsg"}, "a max_dev=9", "should match"},
		"a new line":          {[]string{"spec", "defaultmsg"}, "a\nb", "should match"},
		"a last new line":     {[]string{"spec", "defaultmsg"}, "a\n", "should match"},
		"a quote":             {[]string{"spec", "defaultmsg"}, `"a`, "should match"},
		"another alphabet":    {[]string{"spec", "defaultmsg"}, "\u2028", "should match"},
		"nothing to say":      {[]string{"spec", "defaultmsg"}, "", "at least 1"},
		"too much to say":     {[]string{"spec", "defaultmsg"}, long, "Too long"},
		"as much as fits":     {[]string{"spec", "defaultmsg"}, long[1:], ""},
		"both consumers": {[]string{"spec", "consumer"}, "registry.example.com/c:1",
			"consumer and consumerimage are one field by two names"},
		"both secrets": {[]string{"spec", "imagePullSecret"}, map[string]any{"name": "a"},
			"imageRepoSecret and imagePullSecret are one field by two names"},
		"a secret of no name": {[]string{"spec", "imageRepoSecret"}, map[string]any{}, "name must be set"},
		"no secret":           {[]string{"spec", "imageRepoSecret"}, nil, ""},
		"no selector":         {[]string{"spec", "selector"}, nil, "spec.selector"},
		"a field of no use":   {[]string{"spec", "maxDev"}, int64(3), "unknown field"},
		"the printed group":   {[]string{"apiVersion"}, "ptemplates.pt.example.com/v1alpha", "no matches for"},
	} {
		object := r.sample()
		if c.value == nil {
			unstructured.RemoveNestedField(object.Object, c.field...)
		} else {
			r.must(unstructured.SetNestedField(object.Object, c.value, c.field...))
		}
		err := r.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestDefaultsAreSeen in the stored object.
func TestDefaultsAreSeen(t *testing.T) {
	r := newRig(t)
	p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"selector": map[string]any{}}}}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Ptemplate"))
	p.SetNamespace(r.namespace)
	p.SetName("least")
	r.must(r.admin.Create(t.Context(), p, client.FieldValidation(metav1.FieldValidationStrict)))
	want := v1alpha1.PtemplateSpec{
		MaxDev: v1alpha1.DefaultMaxDev, DefaultMsg: v1alpha1.DefaultMessage, DriverImage: v1alpha1.DefaultDriverImage,
		DevicePlugin: v1alpha1.DefaultDevicePluginImage, RequiredDevices: v1alpha1.DefaultRequiredDevices, Selector: map[string]string{},
	}
	if diff := cmp.Diff(want, r.ptemplate(client.ObjectKeyFromObject(p)).Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// TestConsumersAreTakenWherePodsAreRestricted: the API server's own judgement of the strictest Pod
// Security Standard.
func TestConsumersAreTakenWherePodsAreRestricted(t *testing.T) {
	r := newRig(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: r.namespace + "-restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	r.must(r.admin.Create(t.Context(), namespace))
	r.must(r.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "default"}}))
	p := &v1alpha1.Ptemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "p", UID: "u"}}
	template := consumersOf(t, p).Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "p", Labels: template.Labels}, Spec: template.Spec}
	r.must(r.admin.Create(t.Context(), pod.DeepCopy(), client.DryRunAll))
	if len(pod.Spec.Volumes) > 0 {
		t.Errorf("volumes: %v", pod.Spec.Volumes)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}}}
	if err := r.admin.Create(t.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a volume of the host's: got %v, want a refusal", err)
	}
}

// TestOutdatedDefinitionEndsTheOperator: status.consumers of a definition that lacks it would be
// lost without a word.
func TestOutdatedDefinitionEndsTheOperator(t *testing.T) {
	r := newRig(t)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.SetName("ptemplates.pt.example.com")
	apiextensions, err := client.New(r.env.AdminConfig(), client.Options{Scheme: definitions(t)})
	r.must(err)
	r.must(apiextensions.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	whole := crd.DeepCopy()
	delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "consumers")
	r.must(apiextensions.Update(t.Context(), crd))
	t.Cleanup(func() {
		whole.ResourceVersion = crd.ResourceVersion
		r.must(apiextensions.Update(context.Background(), whole))
	})
	err = ptemplate.Program.Run(t.Context(), r.config, r.options())
	for _, word := range []string{"ptemplates.pt.example.com", "status.consumers", "make install"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want %q in it", err, word)
		}
	}
}

// TestDeploymentHasTheNamesInTheDocuments: what make deploy installs, and the role that was
// generated.
func TestDeploymentHasTheNamesInTheDocuments(t *testing.T) {
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../../config/operators/ptemplate/default")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	role := &rbacv1.ClusterRole{}
	for _, object := range all.Resources() {
		names = append(names, object.GetKind()+" "+object.GetName())
		if object.GetKind() == "ClusterRole" && object.GetName() == "ptemplate-operator-manager-role" {
			content, err := object.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			decode(t, content, role)
		}
	}
	for _, want := range []string{
		"Namespace ptemplate-operator-system", "CustomResourceDefinition ptemplates.pt.example.com",
		"Deployment ptemplate-operator-controller-manager",
		"ServiceAccount ptemplate-operator-controller-manager", "ClusterRole ptemplate-operator-manager-role",
		"ClusterRoleBinding ptemplate-operator-manager-rolebinding", "Role ptemplate-operator-leader-election-role",
		"RoleBinding ptemplate-operator-leader-election-rolebinding",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %q", want, names)
		}
	}
	may := map[string][]string{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			may[resource] = rule.Verbs
		}
	}
	want := map[string][]string{
		"ptemplates": {"get", "list", "watch"}, "ptemplates/status": {"patch"}, "ptemplates/finalizers": {"update"}, "pods": {"list", "watch"},
		"modules":    {"create", "delete", "get", "list", "patch", "watch"},
		"daemonsets": {"create", "delete", "get", "list", "patch", "watch"},
		"events":     {"create", "patch"}, "customresourcedefinitions": {"get"},
	}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatal(err)
	}
}

func definitions(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func consumersOf(t *testing.T, p *v1alpha1.Ptemplate) *appsv1.DaemonSet {
	t.Helper()
	children, err := ptemplate.Desired(p)
	if err != nil {
		t.Fatal(err)
	}
	set, ok := children[1].(*appsv1.DaemonSet)
	if !ok {
		t.Fatalf("got %T", children[1])
	}
	return set
}
