// SPDX-License-Identifier: Apache-2.0

package nodeselector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// config is a DeviceConfig; hour is when it was created.
func config(name string, hour int, selector map[string]string) v1alpha1.DeviceConfig {
	return v1alpha1.DeviceConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)),
		},
		Spec: v1alpha1.DeviceConfigSpec{NodeSelector: selector},
	}
}

// moduleOf is a Module that belongs to a DeviceConfig.
func moduleOf(d *v1alpha1.DeviceConfig, selector map[string]string) v1beta1.Module {
	return v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-module",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.GroupVersion.WithKind("DeviceConfig"))},
		},
		Spec: v1beta1.ModuleSpec{Selector: selector},
	}
}

func node(name string, of map[string]string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}}
}

func judge(d *v1alpha1.DeviceConfig, all []v1alpha1.DeviceConfig, modules []v1beta1.Module, nodes []corev1.Node) *kit.Conflict {
	var configs []*v1alpha1.DeviceConfig
	for i := range all {
		configs = append(configs, &all[i])
	}
	return Exclusive.Judge(d, configs, modules, nodes)
}

func pick(value string) map[string]string { return map[string]string{"pool": value} }

// TestSelectorOfADeviceConfig: an empty one must not select every node.
func TestSelectorOfADeviceConfig(t *testing.T) {
	nfd := map[string]string{"feature.node.kubernetes.io/pci-1da3.present": "true"}
	for given, test := range map[string]struct{ selector, then map[string]string }{
		"unset": {nil, nfd},
		"empty": {map[string]string{}, nfd},
		"set":   {pick("a"), pick("a")},
	} {
		d := config("d", 1, test.selector)
		if got := Of(&d); !maps.Equal(got, test.then) {
			t.Errorf("%s: %v", given, got)
		}
	}
}

func TestWhoLosesNodes(t *testing.T) {
	both := map[string]string{"pool": "a", "disk": "fast"}
	nodes := []corev1.Node{node("n1", pick("a")), node("n2", both), node("n3", pick("b"))}
	disk := map[string]string{"disk": "fast"}
	gone := config("gone", 1, pick("a"))
	gone.DeletionTimestamp = ptr.To(metav1.Now())
	older, younger := config("older", 1, pick("a")), config("younger", 2, disk)
	twin := config("a-twin", 2, pick("a"))
	for given, test := range map[string]struct {
		me      v1alpha1.DeviceConfig
		others  []v1alpha1.DeviceConfig
		modules []v1beta1.Module
		then    string
	}{
		"nobody else":                  {younger, nil, nil, ""},
		"itself":                       {younger, []v1alpha1.DeviceConfig{younger}, nil, ""},
		"other nodes":                  {younger, []v1alpha1.DeviceConfig{config("b", 1, pick("b"))}, nil, ""},
		"an older one, on one node":    {younger, []v1alpha1.DeviceConfig{older}, nil, "ns/older n2"},
		"a younger one":                {older, []v1alpha1.DeviceConfig{younger}, nil, ""},
		"one of the same age, by name": {younger, []v1alpha1.DeviceConfig{twin}, nil, "ns/a-twin n2"},
		"a younger one that has its Module": {older, []v1alpha1.DeviceConfig{younger}, []v1beta1.Module{moduleOf(&younger, disk)},
			"ns/younger n2"},
		"an older one, having a Module itself": {younger, []v1alpha1.DeviceConfig{older}, []v1beta1.Module{moduleOf(&younger, disk)}, ""},
		"both with Modules": {younger, []v1alpha1.DeviceConfig{older},
			[]v1beta1.Module{moduleOf(&younger, disk), moduleOf(&older, pick("a"))}, "ns/older n2"},
		"one that is being deleted": {younger, []v1alpha1.DeviceConfig{gone}, nil, ""},
		"one whose Module is not gone yet": {younger, []v1alpha1.DeviceConfig{gone}, []v1beta1.Module{moduleOf(&gone, pick("a"))},
			"ns/gone n2"},
		"one whose Module is elsewhere, and goes": {younger, []v1alpha1.DeviceConfig{gone}, []v1beta1.Module{moduleOf(&gone, pick("b"))}, ""},
		"two others that quarrel":                 {config("c", 9, pick("b")), []v1alpha1.DeviceConfig{older, younger}, nil, ""},
		"a Module of that name that is not its own": {older, []v1alpha1.DeviceConfig{younger},
			[]v1beta1.Module{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "younger-module"}}}, ""},
		"one that moves here, but is still elsewhere": {
			config("mover", 0, pick("a")), []v1alpha1.DeviceConfig{younger}, []v1beta1.Module{moduleOf(&younger, disk)}, "ns/younger n2",
		},
	} {
		got := ""
		if conflict := judge(&test.me, test.others, test.modules, nodes); conflict != nil {
			got = conflict.With.String() + " " + strings.Join(conflict.Nodes, ",")
		}
		if got != test.then {
			t.Errorf("%s: lost to %q, want %q", given, got, test.then)
		}
	}
}

// TestMoves: labels by which nobody chooses are nobody's matter.
func TestMoves(t *testing.T) {
	d, other := config("d", 1, pick("a")), config("other", 1, pick("b"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	held := moduleOf(&d, map[string]string{"disk": "fast"})
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&d, &other, &held).Build()
	for given, test := range map[string]struct {
		before, after map[string]string
		then          bool
	}{
		"nothing":                    {pick("a"), pick("a"), false},
		"another label":              {pick("a"), map[string]string{"pool": "a", "kmm.node.kubernetes.io/ns.d-module.ready": ""}, false},
		"it comes":                   {nil, pick("a"), true},
		"it goes":                    {pick("b"), pick("c"), true},
		"from one to another":        {pick("a"), pick("b"), true},
		"a value that nobody names":  {pick("c"), pick("d"), false},
		"what only a Module selects": {pick("a"), map[string]string{"pool": "a", "disk": "fast"}, true},
	} {
		got, err := Exclusive.Moves(t.Context(), reader, test.before, test.after)
		if err != nil || got != test.then {
			t.Errorf("%s: %t, %v", given, got, err)
		}
	}
}

// world is a cluster in which DeviceConfigs come, go and change, and one at a time is judged and
// gets its Module, as the operator does it.
type world struct {
	random  *rand.Rand
	born    int
	configs []v1alpha1.DeviceConfig
	modules map[types.UID]v1beta1.Module
	nodes   []corev1.Node
}

func (w *world) labels() map[string]string {
	of := map[string]string{}
	for _, key := range []string{"a", "b", "c"} {
		if w.random.IntN(2) == 0 {
			of[key] = fmt.Sprint(w.random.IntN(2))
		}
	}
	if w.random.IntN(6) == 0 {
		of[v1alpha1.DefaultNodeLabel] = "true"
	}
	return of
}

func (w *world) event() {
	i := w.random.IntN(max(1, len(w.configs)))
	switch pick := w.random.IntN(12); {
	case pick < 2 && len(w.configs) < 6:
		w.born++
		w.configs = append(w.configs, config(fmt.Sprint("d", w.born), w.born/2, w.labels())) // some of one age
	case pick < 3 && len(w.configs) > 0:
		delete(w.modules, w.configs[i].UID)
		w.configs = slices.Delete(w.configs, i, i+1)
	case pick < 5 && len(w.configs) > 0:
		w.configs[i].Spec.NodeSelector = w.labels()
	case pick < 7:
		w.nodes[w.random.IntN(len(w.nodes))].Labels = w.labels()
	}
}

func (w *world) judge(d *v1alpha1.DeviceConfig) bool {
	return judge(d, w.configs, slices.Collect(maps.Values(w.modules)), w.nodes) == nil
}

func selected(selector map[string]string, n *corev1.Node) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(n.Labels))
}

// TestNoNodeIsGivenToTwo: whatever happens in whatever order, of the DeviceConfigs that may have
// their nodes no two want one, and none gets a Module for a node at which another's Module is.
func TestNoNodeIsGivenToTwo(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(60) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), modules: map[types.UID]v1beta1.Module{}}
		for i := range 5 {
			w.nodes = append(w.nodes, node(fmt.Sprint("n", i), w.labels()))
		}
		for range 200 {
			w.event()
			if len(w.configs) == 0 {
				continue
			}
			d := &w.configs[w.random.IntN(len(w.configs))]
			if !w.judge(d) {
				refused++
				continue
			}
			accepted++
			w.audit(t, d)
			w.modules[d.UID] = moduleOf(d, Of(d))
		}
	}
	if accepted < 1000 || refused < 1000 {
		t.Errorf("%d accepted and %d refused show little", accepted, refused)
	}
}

// audit looks at a DeviceConfig that is about to get its Module.
func (w *world) audit(t *testing.T, d *v1alpha1.DeviceConfig) {
	t.Helper()
	before, had := w.modules[d.UID]
	for i := range w.nodes {
		n := &w.nodes[i]
		if !selected(Of(d), n) {
			continue
		}
		for j := range w.configs {
			other := &w.configs[j]
			if other.UID == d.UID {
				continue
			}
			if selected(Of(other), n) && w.judge(other) {
				t.Fatalf("%s and %s may both have node %s", d.Name, other.Name, n.Name)
			}
			theirs, there := w.modules[other.UID]
			gains := !had || !selected(before.Spec.Selector, n)
			if gains && there && selected(theirs.Spec.Selector, n) {
				t.Fatalf("%s gets node %s, which the Module of %s selects", d.Name, n.Name, other.Name)
			}
		}
	}
}
