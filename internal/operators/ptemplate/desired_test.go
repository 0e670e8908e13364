// SPDX-License-Identifier: Apache-2.0

package ptemplate

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
)

var update = flag.Bool("update", false, "write what is desired to testdata")

const definition = "../../../config/operators/ptemplate/crd/pt.example.com_ptemplates.yaml"

func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func specSchema(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	read(t, definition, &crd)
	return *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// TestChildrenAreAsReviewed: what the sample becomes, and what an object becomes that has nothing
// but its required field, are files to read.
func TestChildrenAreAsReviewed(t *testing.T) {
	sample := &v1alpha1.Ptemplate{}
	read(t, "../../../config/operators/ptemplate/samples/pt_v1alpha1_ptemplate.yaml", sample)
	sample.Namespace, sample.UID = "devices", "b5b1c6d0"
	least := &v1alpha1.Ptemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "least", Namespace: "devices", UID: "0f6a2e11"},
		Spec:       v1alpha1.PtemplateSpec{Selector: map[string]string{}},
	}
	for name, p := range map[string]*v1alpha1.Ptemplate{"sample": sample, "least": least} {
		before := p.DeepCopy()
		children, err := Desired(p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, p); diff != "" {
			t.Errorf("%s was changed (-before +after):\n%s", name, diff)
		}
		for i, kind := range []string{"module", "consumer"} {
			compare(t, "testdata/"+name+"-"+kind+".yaml", children[i])
		}
	}
}

func compare(t *testing.T, file string, object client.Object) {
	t.Helper()
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", file, diff)
	}
}

// TestDefaultsStandInTheSchema: an object that went through the API server and one that did not
// become the same.
func TestDefaultsStandInTheSchema(t *testing.T) {
	spec := specSchema(t).Properties["spec"]
	got := map[string]string{}
	for name, property := range spec.Properties {
		if property.Default != nil {
			got[name] = strings.Trim(string(property.Default.Raw), `"`)
		}
	}
	s := settingsOf(&v1alpha1.Ptemplate{})
	text := func(v any) string {
		content, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Trim(string(content), `"`)
	}
	want := map[string]string{
		"maxdev": text(s.maxDev), "requiredDevices": text(s.required), "defaultmsg": s.message, "driverImage": s.driver, "deviceplugin": s.plugin,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-code +schema):\n%s", diff)
	}
	// It has two names, so that the API server cannot set it.
	if d := spec.Properties["consumer"].Description; !strings.Contains(d, s.consumer) {
		t.Errorf("the consumer's default is %s, and its description says %q", s.consumer, d)
	}
}

// TestEveryFieldHasItsNameInTheSchema walks the Go type: the name of each field is said by a tag,
// and the schema has the same fields.
func TestEveryFieldHasItsNameInTheSchema(t *testing.T) {
	schema := specSchema(t)
	for name, value := range map[string]reflect.Type{
		"spec": reflect.TypeFor[v1alpha1.PtemplateSpec](), "status": reflect.TypeFor[v1alpha1.PtemplateStatus](),
	} {
		var tags []string
		for i := range value.NumField() {
			tag, _, _ := strings.Cut(value.Field(i).Tag.Get("json"), ",")
			if tag == "" || tag == "-" {
				t.Errorf("%s.%s has no name", name, value.Field(i).Name)
			}
			tags = append(tags, tag)
		}
		slices.Sort(tags)
		if diff := cmp.Diff(tags, slices.Sorted(maps.Keys(schema.Properties[name].Properties))); diff != "" {
			t.Errorf("fields of %s (-type +schema):\n%s", name, diff)
		}
	}
	if _, found := schema.Properties["status"].Properties["consumers"]; !found {
		t.Error("status.consumers is missing")
	}
	if slices.Contains(schema.Properties["status"].Required, "consumers") {
		t.Error("status.consumers is required: none at all could not be written")
	}
}

// TestConsumersAreOursAndRun: whatever order the API server lists them in.
func TestConsumersAreOursAndRun(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "p-consumer", UID: "set"}}
	pod := func(name string, owner types.UID, phase corev1.PodPhase) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
		if owner != "" {
			controller := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "p-consumer", UID: owner,
				Controller: &controller}}
		}
		return p
	}
	going := pod("e-going", "set", corev1.PodRunning)
	going.DeletionTimestamp = &metav1.Time{}
	pods := []corev1.Pod{
		pod("c", "set", corev1.PodRunning), pod("a", "set", corev1.PodRunning), pod("b", "set", corev1.PodPending),
		pod("d-foreign", "other", corev1.PodRunning),
		pod("f-nobodys", "", corev1.PodRunning), pod("g-failed", "set", corev1.PodFailed), going,
	}
	want := []string{"a", "c"}
	for range 2 {
		if diff := cmp.Diff(want, consumers(set, pods)); diff != "" {
			t.Errorf("consumers (-want +got):\n%s", diff)
		}
		slices.Reverse(pods)
	}
	if got := consumers(set, nil); got == nil || len(got) != 0 {
		t.Errorf("without pods: got %#v, want an empty list", got)
	}
}

// TestNothingIsNeeded: objects that no API server has seen, without a secret, a selector or
// anything else, become children and do not end the process.
func TestNothingIsNeeded(t *testing.T) {
	children, err := Desired(&v1alpha1.Ptemplate{})
	if err != nil {
		t.Fatal(err)
	}
	set, ok := children[1].(*appsv1.DaemonSet)
	if !ok {
		t.Fatalf("got %T", children[1])
	}
	if secrets := set.Spec.Template.Spec.ImagePullSecrets; len(secrets) > 0 {
		t.Errorf("pull secrets: %v", secrets)
	}
	if err := consumersReady(&appsv1.DaemonSet{}); err == nil {
		t.Error("a DaemonSet without a status is ready")
	}
}

func TestConsumersAreReadyOnAllNodesOrSayOnHowMany(t *testing.T) {
	status := func(observed int64, desired, ready, updated int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "p-consumer", Generation: 2}, Status: appsv1.DaemonSetStatus{
			ObservedGeneration: observed, DesiredNumberScheduled: desired, NumberReady: ready, UpdatedNumberScheduled: updated,
		}}
	}
	for name, c := range map[string]struct {
		given *appsv1.DaemonSet
		then  string
	}{
		"all":        {status(2, 3, 3, 3), ""},
		"one is not": {status(2, 3, 2, 3), "2 of 3 nodes"},
		"one is old": {status(2, 3, 3, 1), "1 of them up to date"},
		"unseen":     {status(1, 3, 3, 3), "Kubernetes has not looked at it yet"},
		"none":       {status(2, 0, 0, 0), "0 of 0 nodes"},
	} {
		got := ""
		if err := consumersReady(c.given); err != nil {
			got = err.Error()
		}
		if (c.then == "") != (got == "") || !strings.Contains(got, c.then) {
			t.Errorf("%s: got %q, want %q", name, got, c.then)
		}
	}
}
