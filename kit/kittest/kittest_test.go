// SPDX-License-Identifier: Apache-2.0

package kittest_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit/kittest"
	"github.com/drover-project/drover/kit/kittest/internal/widget"
)

const (
	inProcess = "widget-operator"
	asProcess = "widget-process"
	lonely    = "lonely-operator"
	// osImage of the second node.
	osImage = "Red Hat Enterprise Linux CoreOS 418.94"
)

func TestMain(m *testing.M) {
	os.Exit(kittest.Main(m, kittest.Options{
		Nodes: []kittest.NodeOptions{
			{Labels: map[string]string{"example.com/card": "a"}, Devices: map[corev1.ResourceName]int64{"example.com/card": 2}},
			{Kernel: "6.1.0-44-amd64", OSImage: osImage, Labels: map[string]string{"example.com/card": "b"}},
		},
		Manifests: []string{"testdata/widgets.yaml"},
		Operators: []kittest.OperatorOptions{
			{Name: inProcess, Roles: []string{"testdata/role.yaml"}, Program: &widget.Program},
			{Name: asProcess, Roles: []string{"testdata/role.yaml"}, Package: "./internal/widget/operator"},
			{Name: lonely},
		},
	}))
}

// given makes a Widget on the nodes whose card is of that kind, and waits until it is ready.
func given(t *testing.T, card, kernelModule string) (*kittest.Cluster, *unstructured.Unstructured) {
	t.Helper()
	c := kittest.Shared(t)
	w := widget.New()
	w.SetNamespace(c.Namespace(t))
	w.SetName("w")
	w.Object["spec"] = map[string]any{"kernelModule": kernelModule, "selector": map[string]any{"example.com/card": card}}
	c.Create(t, w)
	t.Cleanup(func() {
		if !t.Failed() {
			c.Delete(t, w)
		}
	})
	return c, w
}

func TestNodesRunWhatTheOptionsSay(t *testing.T) {
	c := kittest.Shared(t)
	for i, want := range []string{"Hollow Linux", osImage} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node(i).Name}}
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Fatal(err)
		}
		if got := node.Status.NodeInfo.OSImage; got != want {
			t.Errorf("node %d says that it runs %q, want %q", i, got, want)
		}
	}
}

func TestWidgetReachesTheKernel(t *testing.T) {
	c, w := given(t, "a", "reaches")
	kittest.AwaitReady(t, c, w)

	if k := c.Node(0).AwaitLoaded(t, client.ObjectKeyFromObject(w)); !k.Has("reaches") || k.Release != kittest.DefaultKernel {
		t.Errorf("node 0 has %+v", k)
	}
	if k := c.Node(1).Kernel(t); k.Has("reaches") || k.Release != "6.1.0-44-amd64" {
		t.Errorf("node 1 has %+v", k)
	}

	c.Delete(t, w)

	if k := c.Node(0).AwaitUnloaded(t, client.ObjectKeyFromObject(w)); k.Has("reaches") {
		t.Errorf("after the Widget went, node 0 has %+v", k)
	}
}

// TestFaults: each is told by the Module, and is over when it is mended.
func TestFaults(t *testing.T) {
	cases := map[string]struct {
		breaks func(t *testing.T, c *kittest.Cluster, n *kittest.Node, kernelModule string)
		then   string
		mends  func(t *testing.T, c *kittest.Cluster, n *kittest.Node, kernelModule string)
	}{
		"no device": {
			breaks: func(t *testing.T, _ *kittest.Cluster, n *kittest.Node, m string) { n.FailLoad(t, m, "ENODEV") },
			then:   v1beta1.ReasonNoSuchDevice,
			mends:  func(t *testing.T, _ *kittest.Cluster, n *kittest.Node, m string) { n.Mend(t, m); n.Reboot(t) },
		},
		"hang": {
			then:   v1beta1.ReasonTimeout,
			breaks: func(t *testing.T, _ *kittest.Cluster, n *kittest.Node, m string) { n.HangLoad(t, m) },
			mends:  func(t *testing.T, _ *kittest.Cluster, n *kittest.Node, m string) { n.Mend(t, m); n.Reboot(t) },
		},
		"no image": {
			breaks: func(t *testing.T, c *kittest.Cluster, _ *kittest.Node, m string) {
				c.BreakImages(t, "/"+m+":", kittest.ImageMissing)
			},
			then:  v1beta1.ReasonImageNotFound,
			mends: func(t *testing.T, c *kittest.Cluster, _ *kittest.Node, m string) { c.MendImages(t, "/"+m+":") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kernelModule := "fault_" + strings.ReplaceAll(name, " ", "_")
			c := kittest.Shared(t)
			tc.breaks(t, c, c.Node(1), kernelModule)
			_, w := given(t, "b", kernelModule)
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: w.GetNamespace(), Name: w.GetName()}}

			kittest.AwaitCondition(t, c, m, v1beta1.ConditionLoaded, metav1.ConditionFalse, tc.then)
			kittest.AwaitCondition(t, c, w, "Ready", metav1.ConditionFalse, "")
			tc.mends(t, c, c.Node(1), kernelModule)

			kittest.AwaitReady(t, c, w)
		})
	}
}

// TestDrift: what somebody removes comes back.
func TestDrift(t *testing.T) {
	c, w := given(t, "a", "drifts")
	kittest.AwaitReady(t, c, w)
	before := c.Node(0).Kernel(t)

	c.Node(0).Remove(t, "drifts")

	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: w.GetNamespace(), Name: w.GetName()}}
	c.Node(0).AwaitLoads(t, before.Loads+1)
	kittest.AwaitReady(t, c, m)
}

func TestRebootEmptiesTheKernel(t *testing.T) {
	c, w := given(t, "b", "reboots")
	kittest.AwaitReady(t, c, w)
	before := c.Node(1).Kernel(t)

	c.Node(1).RebootInto(t, "6.1.0-45-amd64")
	t.Cleanup(func() { c.Node(1).RebootInto(t, "6.1.0-44-amd64") })

	c.Node(1).AwaitLoads(t, before.Loads+1)
	after := c.Node(1).AwaitLoaded(t, client.ObjectKeyFromObject(w))
	if after.Release != "6.1.0-45-amd64" || after.BootID == before.BootID || !after.Has("reboots") {
		t.Errorf("before the reboot: %+v; after it: %+v", before, after)
	}
}

// TestOperatorHasItsRoleAndNoMore for both ways to run one.
func TestOperatorHasItsRoleAndNoMore(t *testing.T) {
	c, w := given(t, "a", "roles")
	kittest.AwaitReady(t, c, w)
	for name, want := range map[string]bool{inProcess: true, asProcess: true, lonely: false} {
		mine := c.Operator(t, name).Client(t)
		if err := mine.List(t.Context(), &v1beta1.ModuleList{}); (err == nil) != want {
			t.Errorf("%s lists Modules: %v", name, err)
		}
		if err := mine.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists Secrets: %v", name, err)
		}
	}
}

// TestWrites: the audit log has what an operator does, and a second pass of one that has nothing to
// do.
func TestWrites(t *testing.T) {
	for _, name := range []string{inProcess, asProcess} {
		t.Run(name, func(t *testing.T) {
			c := kittest.Shared(t)
			other := map[string]string{inProcess: asProcess, asProcess: inProcess}[name]
			c.Operator(t, other).Stop(t)
			t.Cleanup(func() { c.Operator(t, other).Start(t) })
			var w *unstructured.Unstructured
			made := c.Operator(t, name).Writes(t, func() {
				_, w = given(t, "a", "writes")
				kittest.AwaitReady(t, c, w)
			})
			kinds := map[string]bool{}
			for _, write := range made {
				kinds[write.Verb+" "+write.Resource] = true
			}
			if !kinds["patch modules"] || !kinds["patch widgets/status"] || len(kinds) != 2 {
				t.Errorf("the first pass wrote %+v", made)
			}
			if again := c.Operator(t, name).SecondPass(t); len(again) > 0 {
				t.Errorf("the second pass wrote %+v", again)
			}
		})
	}
}

func TestKilledOperatorStartsAgain(t *testing.T) {
	c := kittest.Shared(t)
	c.Operator(t, inProcess).Stop(t)
	t.Cleanup(func() { c.Operator(t, inProcess).Start(t) })
	c.Operator(t, asProcess).Kill(t)
	_, w := given(t, "a", "kills")
	if conditions, err := kittest.Conditions(w); err != nil || len(conditions) > 0 {
		t.Errorf("with no operator there is %v (%v)", conditions, err)
	}

	c.Operator(t, asProcess).Start(t)

	kittest.AwaitReady(t, c, w)
}

// TestPodsGetDevices: a pod that asks for more devices than a node has is not for it.
func TestPodsGetDevices(t *testing.T) {
	c := kittest.Shared(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node(0).Name}}
	kittest.Await(t, c, node, "the node has its cards", func(n *corev1.Node) error { return nil })
	if cards := node.Status.Allocatable["example.com/card"]; cards.Value() != 2 {
		t.Errorf("node 0 has %s cards", cards.String())
	}
}

// TestStrictValidation: a field that a kind does not have is an error, not dropped.
func TestStrictValidation(t *testing.T) {
	c := kittest.Shared(t)
	w := widget.New()
	w.SetNamespace(c.Namespace(t))
	w.SetName("strict")
	w.Object["spec"] = map[string]any{"kernelmodule": "misspelt"}
	err := c.Client.Create(t.Context(), w, client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil || !strings.Contains(err.Error(), "kernelmodule") {
		t.Errorf("the answer is %v", err)
	}
}
