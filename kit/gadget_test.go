// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

var gadgets = schema.GroupVersion{Group: "kit.example.com", Version: "v1"}

// Gadget is a custom resource of these tests: it becomes a Module, a ConfigMap and, if it wants
// one, a ServiceAccount.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec,omitempty"`
	Status            GadgetStatus `json:"status,omitempty"`
}

type GadgetSpec struct {
	Image    string            `json:"image,omitempty"`
	Size     string            `json:"size,omitempty"`
	Account  bool              `json:"account,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
}

type GadgetStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Size       string             `json:"size,omitempty"`
	Nodes      int32              `json:"nodes,omitempty"`
}

func (g *Gadget) Conditions() *[]metav1.Condition { return &g.Status.Conditions }

func (g *Gadget) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy() //nolint:staticcheck // of the metadata alone
	out.Spec.Selector = copyMap(g.Spec.Selector)
	out.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return &out
}

type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

func (l *GadgetList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Gadget)) //nolint:errcheck // a copy
	}
	return &out
}

// GadgetWorkspace remembers what an operator of Gadgets has begun.
type GadgetWorkspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Pending map[string]string `json:"pending,omitempty"`
		Done    map[string]string `json:"done,omitempty"`
	} `json:"spec,omitempty"`
}

func (w *GadgetWorkspace) Pending() *map[string]string { return &w.Spec.Pending }
func (w *GadgetWorkspace) Done() *map[string]string    { return &w.Spec.Done }

func (w *GadgetWorkspace) DeepCopyObject() runtime.Object {
	out := *w
	out.ObjectMeta = *w.ObjectMeta.DeepCopy() //nolint:staticcheck // of the metadata alone
	out.Spec.Pending, out.Spec.Done = copyMap(w.Spec.Pending), copyMap(w.Spec.Done)
	return &out
}

// Widget is of a kind whose definition is missing, or too old.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec `json:"spec,omitempty"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	out := *w
	out.ObjectMeta = *w.ObjectMeta.DeepCopy() //nolint:staticcheck // of the metadata alone
	out.Spec.Selector = copyMap(w.Spec.Selector)
	return &out
}

type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = append([]Widget(nil), l.Items...)
	return &out
}

func copyMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func addGadgets(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(gadgets, &Gadget{}, &GadgetList{}, &GadgetWorkspace{}, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme, gadgets)
	return nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, addGadgets} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// operator of Gadgets.
func operator() kit.Operator[*Gadget] {
	return kit.Operator[*Gadget]{
		Name:     operatorName,
		New:      func() *Gadget { return &Gadget{} },
		Children: []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &v1beta1.Module{}},
		Check: func(_ context.Context, g *Gadget) error {
			if g.Spec.Size == "none" {
				return kit.Refused("NoSize", "A gadget of no size is none: choose another")
			}
			return nil
		},
		Desired: func(g *Gadget) ([]client.Object, error) {
			var children []client.Object
			if g.Spec.Account {
				children = append(children, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: g.Name}})
			}
			return append(children, configOf(g), moduleOf(g)), nil
		},
		Observe: func(_ context.Context, g *Gadget, children []client.Object) error {
			config, ok := children[len(children)-2].(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("got %T", children[len(children)-2])
			}
			module, ok := children[len(children)-1].(*v1beta1.Module)
			if !ok {
				return fmt.Errorf("got %T", children[len(children)-1])
			}
			g.Status.Size, g.Status.Nodes = config.Data["size"], module.Status.ModuleLoader.AvailableNumber
			return kit.ModuleReady(module)
		},
	}
}

func configOf(g *Gadget) *corev1.ConfigMap {
	data := map[string]string{}
	if g.Spec.Size != "" {
		data["size"] = g.Spec.Size
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: g.Name + "-config"}, Data: data}
}

func moduleOf(g *Gadget) *v1beta1.Module {
	b := kit.NewModule(g.Name).Selector(g.Spec.Selector).KernelModule("gadget").Mapping(kit.Regexp("^.+$"), g.Spec.Image)
	if g.Spec.Size != "" {
		b.Parameter("size", g.Spec.Size)
	}
	return b.Build()
}

// stored is what the Module's loader looks like in the API server, with its defaults.
func stored(g *Gadget) *v1beta1.ModuleLoaderSpec {
	loader := moduleOf(g).Spec.ModuleLoader
	loader.Container.Modprobe.DirName = "/opt"
	return loader
}
