// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
	"github.com/drover-project/drover/kit/labels"
)

// A whole operator: each Gadget becomes a Module, and is ready when the Module is.
func Example() {
	operator := kit.Operator[*Gadget]{
		Name:     "gadget-operator",
		New:      func() *Gadget { return &Gadget{} },
		Children: []client.Object{&v1beta1.Module{}},
		Desired: func(g *Gadget) ([]client.Object, error) {
			return []client.Object{
				kit.NewModule(g.Name).Selector(g.Spec.Selector).KernelModule("gadget").Mapping(kit.Regexp("^.+$"), g.Spec.Image).Build(),
			}, nil
		},
		Observe: func(_ context.Context, _ *Gadget, children []client.Object) error {
			module, ok := children[0].(*v1beta1.Module)
			if !ok {
				return fmt.Errorf("expected a Module, got %T", children[0])
			}
			return kit.ModuleReady(module)
		},
	}
	program := kit.Program{
		Name:        "gadget-operator",
		AddToScheme: []func(*runtime.Scheme) error{addGadgets, v1beta1.AddToScheme},
		Requires:    []kit.Requirement{{Object: &Gadget{}}},
		Setup:       func(mgr ctrl.Manager) error { return kit.Add(mgr, operator) },
	}
	_ = program // func main() { kit.Main(program) }
}

// A Module that loads a kernel module with a parameter, and runs a device plugin where it is ready.
func ExampleNewModule() {
	module := kit.NewModule("nic").
		Selector(map[string]string{"example.com/nic": "true"}).
		KernelModule("nic").
		Parameter("queues", "8").
		Mapping(kit.Regexp(`^6\.`), "registry.example/nic:1.2-${KERNEL_FULL_VERSION}").
		DevicePlugin("registry.example/nic-plugin:1.2").
		Build()
	text, err := yaml.Marshal(module.Spec.ModuleLoader.Container.KernelMappings)
	fmt.Print(string(text), err)
	// Output:
	// - containerImage: registry.example/nic:1.2-${KERNEL_FULL_VERSION}
	//   regexp: ^6\.
	// <nil>
}

// Two objects want one node: the older one keeps it.
func ExampleOverlap() {
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Labels: map[string]string{"nic": "x", "rack": "7"}}}}
	older := kit.Claim{Key: types.NamespacedName{Namespace: "ns", Name: "nics"}, Selector: map[string]string{"nic": "x"},
		Created: time.Unix(1, 0)}
	younger := kit.Claim{Key: types.NamespacedName{Namespace: "ns", Name: "rack"}, Selector: map[string]string{"rack": "7"},
		Created: time.Unix(2, 0)}
	fmt.Println(kit.Overlap(older, []kit.Claim{younger}, nodes))
	fmt.Println(kit.Overlap(younger, []kit.Claim{older}, nodes))
	// Output:
	// <nil>
	// ns/nics has the same nodes (worker-1): choose others
}

// Check of an Operator may refuse an object, or wait for something; either ends as a condition.
func ExampleRefused() {
	err := kit.Refused("NoSuchFirmware", "There is no firmware %s: choose one of %s", "0.9", "1.0, 1.1")
	problem := kit.ProblemOf(err)
	fmt.Println(problem.Reason, problem.Errored)
	fmt.Println(problem.Message)
	// Output:
	// NoSuchFirmware true
	// There is no firmware 0.9: choose one of 1.0, 1.1
}

// A machine is ordered exactly once for a Gadget, although the operator may die at any moment: the
// seller knows the order by its number.
func ExampleOnce() {
	order := func(ctx context.Context, c client.Client, live client.Reader, g *Gadget) error {
		return kit.Once(ctx, c, live, g, &GadgetWorkspace{}, "order-"+g.Spec.Size, func(_ context.Context, nonce string) error {
			fmt.Println("POST /orders with Idempotency-Key:", nonce)
			return nil
		})
	}
	_ = order // called from Operator.Observe
}

// A pod that needs the kernel module runs only where it is ready.
func ExampleModuleReady() {
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nic"}}
	module.Status.ModuleLoader = v1beta1.DaemonSetStatus{DesiredNumber: 3, AvailableNumber: 2}
	fmt.Println(kit.ModuleReady(module))
	fmt.Println(labels.WhereReady("ns", "nic", nil))
	// Output:
	// Progressing: Module nic is ready on 2 of 3 nodes
	// map[kmm.node.kubernetes.io/ns.nic.ready:]
}
