// SPDX-License-Identifier: Apache-2.0

// Package operators tests the device operators as a whole: what the documents that they follow
// print becomes ready on hollow nodes, with every operator as a process under its own generated
// role. The last line that it prints is RESULT with what came of it; `make e2e-operators` shows it.
//
// BREAK breaks something on purpose, so that the result must be red: field (an example has a field
// that does not exist), role (the operator of Ptemplates has another one's role), operator (the
// operator of Lolcows is stopped before its children are changed).
package operators

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/kit/kittest"
)

// Kernels of the nodes: one of Enterprise Linux, and one that the example of the older group names.
const (
	kernelEL     = "4.18.0-305.el8.x86_64"
	kernelFedora = "5.16.11-200.fc35.x86_64"
)

// operators by the kind of their custom resource.
var operators = map[string]string{"DeviceConfig": "deviceconfig", "Ptemplate": "ptemplate", "Lolcow": "lolcow"}

// examples are files of testdata, each with one object. They are tried in this order.
var examples = []string{"deviceconfig", "ooto_module", "ptemplate", "ptemplate_defaults", "lolcow"}

// result is what RESULT says.
var result struct {
	Seeds            int    `json:"seeds"`
	Ready            int    `json:"ready"`
	SecondPassWrites int    `json:"secondPassWrites"`
	Fields           int    `json:"fields"`
	FieldsMutated    int    `json:"fieldsMutated"`
	Healed           bool   `json:"healed"`
	UpstreamChildren int    `json:"upstreamChildren"`
	UpstreamAccepted int    `json:"upstreamAccepted"`
	Break            string `json:"break,omitempty"`
}

func TestMain(m *testing.M) {
	flag.Parse()
	result.SecondPassWrites, result.Break = -1, os.Getenv("BREAK")
	code := kittest.Main(m, kittest.Options{
		Nodes: []kittest.NodeOptions{
			{
				Kernel: kernelEL, Devices: map[corev1.ResourceName]int64{"example.com/ptemplate": 5},
				Labels: map[string]string{
					"feature.node.kubernetes.io/pci-1da3.present": "true", "feature.node.kubernetes.io/cpu-cpuid.VMX": "true",
					"node-role.kubernetes.io/worker": "worker",
				},
			},
			{
				Kernel: kernelFedora, Devices: map[corev1.ResourceName]int64{"example.com/ptemplate": 5},
				Labels: map[string]string{"feature.node.kubernetes.io/cpu-cpuid.VMX": "true", "node-role.kubernetes.io/infra": "infra"},
			},
		},
		Ooto: true, Manifests: definitions(), Operators: processes(),
	})
	line, err := json.Marshal(result)
	if err != nil {
		fmt.Fprintln(os.Stderr, "RESULT:", err)
		code = 1
	}
	fmt.Printf("RESULT %s\n", line)
	os.Exit(code)
}

// definitions are the operators' CustomResourceDefinitions.
func definitions() []string {
	var all []string
	for _, name := range operators {
		all = append(all, config(name, "crd"))
	}
	return all
}

// processes are the operators, as what `make manifests` and `go build` make.
func processes() []kittest.OperatorOptions {
	var all []kittest.OperatorOptions
	for _, name := range operators {
		role := name
		if name == "ptemplate" && os.Getenv("BREAK") == "role" {
			role = "lolcow"
		}
		all = append(all, kittest.OperatorOptions{
			Name: name + "-operator", Roles: []string{config(role, "rbac", "role.yaml")}, Package: "../../cmd/" + name + "-operator",
		})
	}
	return all
}

func config(operator string, path ...string) string {
	return filepath.Join(append([]string{"../../config/operators", operator}, path...)...)
}

// example reads an object of testdata for a namespace.
func example(t *testing.T, name, namespace string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(content, &o.Object); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	o.SetNamespace(namespace)
	if os.Getenv("BREAK") == "field" && name == "lolcow" {
		if err := unstructured.SetNestedField(o.Object, "HELLO", "spec", "greetings"); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// given applies an example in a namespace of its own, under strict validation, with what it names,
// and waits until it is ready.
func given(t *testing.T, name string) (*kittest.Cluster, *unstructured.Unstructured) {
	t.Helper()
	c := kittest.Shared(t)
	o := example(t, name, c.Namespace(t))
	for _, account := range []string{"some-sa", "another"} {
		c.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: account}})
	}
	c.Create(t, o)
	t.Cleanup(func() { c.Delete(t, o) })
	awaitReady(t, c, o)
	return c, o
}

// awaitReady waits for the condition Ready, and where there is none, for the older group's
// integers.
func awaitReady(t *testing.T, c *kittest.Cluster, o *unstructured.Unstructured) {
	t.Helper()
	if o.GroupVersionKind().Group != "ooto.sigs.k8s.io" {
		kittest.AwaitReady(t, c, o)
		return
	}
	kittest.Await(t, c, o, "all of its nodes are ready", func(now *unstructured.Unstructured) error {
		for _, part := range []string{"driverContainer", "devicePlugin"} {
			counts, _, err := unstructured.NestedMap(now.Object, "status", part)
			if err != nil || counts["desiredNumberScheduled"] != int64(2) || counts["numberAvailable"] != int64(2) {
				return fmt.Errorf("status.%s is %v (%w)", part, counts, err)
			}
		}
		return nil
	})
}
