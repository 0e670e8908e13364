// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func TestGoKnowsTheContainersLimit(t *testing.T) {
	cases := map[string]struct {
		given map[string]string
		then  int64
		fails bool
	}{
		"no limit":             {},
		"512Mi":                {given: map[string]string{MemoryVariable: "536870912"}, then: 536870912 / 100 * 90},
		"Go's own wins":        {given: map[string]string{MemoryVariable: "536870912", goMemoryVariable: "100MiB"}},
		"Go's own percentage":  {given: map[string]string{garbageVariable: "100"}},
		"not a number":         {given: map[string]string{MemoryVariable: "512Mi"}, fails: true},
		"a limit below a byte": {given: map[string]string{MemoryVariable: "0"}, fails: true},
	}
	before, garbage := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	t.Cleanup(func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(garbage)
	})
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			debug.SetGCPercent(100)
			got, err := LimitMemory(func(key string) string { return test.given[key] })
			if got != test.then || (err != nil) != test.fails {
				t.Errorf("got %d, %v", got, err)
			}
			if set := debug.SetMemoryLimit(-1); test.then > 0 && set != test.then {
				t.Errorf("Go's limit is %d, want %d", set, test.then)
			}
			want := 100
			if test.given[garbageVariable] == "" {
				want = fillingPercent
			}
			if set := debug.SetGCPercent(100); set != want {
				t.Errorf("garbage may be %d %% of the heap, want %d", set, want)
			}
		})
	}
}

// TestGarbageMayGrowOnceTheCachesAreFull: until then, a whole fleet is decoded at once.
func TestGarbageMayGrowOnceTheCachesAreFull(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		given map[string]string
		ctx   context.Context
		fails int // times that a cache cannot be had
		while int
		then  int
	}{
		"by default":                    {ctx: t.Context(), while: fillingPercent, then: garbagePercent},
		"Go's own wins":                 {ctx: t.Context(), given: map[string]string{garbageVariable: "100"}, then: 100},
		"a definition that comes later": {ctx: t.Context(), fails: 2, while: fillingPercent, then: garbagePercent},
		"the operator ends before that": {ctx: ended, fails: 2, while: fillingPercent, then: fillingPercent},
	}
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			debug.SetGCPercent(100)
			getenv := func(key string) string { return test.given[key] }
			if _, err := LimitMemory(getenv); err != nil {
				t.Fatal(err)
			}
			filling := &filling{fails: test.fails}
			if err := filled(test.ctx, getenv, filling, (&Options{}).grows()...); err != nil {
				t.Errorf("it ends the operator: %v", err)
			}
			if filling.most != test.while || garbage() != test.then {
				t.Errorf("garbage may be %d %% while caches are filled, %d %% after that, want %d %% and %d %%",
					filling.most, garbage(), test.while, test.then)
			}
		})
	}
}

// filling are caches that remember the most garbage that could be while one was waited for.
type filling struct {
	cache.Informers
	most, fails int
}

func (f *filling) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	f.most = max(f.most, garbage())
	if f.fails--; f.fails >= 0 {
		return nil, errors.New("no matches for kind")
	}
	return nil, nil
}

// garbage is how much of what lives may be garbage, in percent.
func garbage() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64()) //nolint:gosec // a percentage
}

// TestTextsOfAllNodesAreShared: a NodeModulesConfig repeats them in spec and status, and every node
// repeats them.
func TestTextsOfAllNodesAreShared(t *testing.T) {
	node := func() *v1beta1.NodeModulesConfig {
		copied := func(s string) string { return strings.Clone(s) }
		item := func() v1beta1.ModuleItem { return v1beta1.ModuleItem{Namespace: copied("team"), Name: copied("nic")} }
		config := func() v1beta1.ModuleConfig {
			return v1beta1.ModuleConfig{
				ContainerImage: copied("registry.example/nic:6.1.0"), KernelVersion: copied("6.1.0"),
				Modprobe: v1beta1.ModprobeSpec{ModuleName: copied("nic"), Parameters: []string{copied("mode=fast")}},
			}
		}
		return &v1beta1.NodeModulesConfig{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{copied("label"): ""},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
			Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{{
				ModuleItem: item(), Config: config(), Delivery: &v1beta1.Delivery{ID: copied("id"), CarrierUID: "on its way"},
			}, {
				ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "gpu"}, Config: config(),
				Delivery: &v1beta1.Delivery{ID: copied("held"), CarrierUID: "has delivered"},
			}}},
			Status: v1beta1.NodeModulesConfigStatus{Modules: []v1beta1.NodeModuleStatus{{ModuleItem: item(), Config: ptr.To(config())}},
				Artifacts: []v1beta1.NodeArtifact{{ID: copied("held")}}},
		}
	}
	a, b := node(), node()
	for _, object := range []*v1beta1.NodeModulesConfig{a, b} {
		if _, err := slimConfig(object); err != nil {
			t.Fatal(err)
		}
	}
	want := node()
	want.ManagedFields = nil
	want.Spec.Modules[1].Delivery.CarrierUID = ""
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
	same := func(what, x, y string) {
		t.Helper()
		if unsafe.StringData(x) != unsafe.StringData(y) {
			t.Errorf("%s is kept twice", what)
		}
	}
	same("the image in status", a.Spec.Modules[0].Config.ContainerImage, a.Status.Modules[0].Config.ContainerImage)
	same("a parameter in status", a.Spec.Modules[0].Config.Modprobe.Parameters[0], a.Status.Modules[0].Config.Modprobe.Parameters[0])
	same("the image on another node", a.Spec.Modules[0].Config.ContainerImage, b.Spec.Modules[0].Config.ContainerImage)
	if got := a.Spec.Modules[1].Delivery.CarrierUID; got != "" {
		t.Errorf("the carrier %s of what the node holds is kept", got)
	}
	if a.Spec.Modules[1].Delivery != b.Spec.Modules[1].Delivery || reflect.ValueOf(a.Labels).Pointer() != reflect.ValueOf(b.Labels).Pointer() {
		t.Error("deliveries or labels are kept twice")
	}
	if a.Status.Modules[0].Config != &a.Spec.Modules[0].Config {
		t.Error("what is live as ordered is kept twice")
	}
	same("the delivery on another node", a.Spec.Modules[0].Delivery.ID, b.Spec.Modules[0].Delivery.ID)
	for _, object := range []*v1beta1.NodeModulesConfig{a, b} {
		object.Spec.Modules = object.Spec.Modules[1:]
		if _, err := slimConfig(object); err != nil {
			t.Fatal(err)
		}
	}
	if &a.Spec.Modules[0] != &b.Spec.Modules[0] {
		t.Error("orders that are the same on two nodes are kept twice")
	}
	paused := b.DeepCopy()
	paused.Spec.Modules[0].Paused = true
	if _, err := slimConfig(paused); err != nil || !paused.Spec.Modules[0].Paused || a.Spec.Modules[0].Paused {
		t.Errorf("a pause of one node: %+v (%v); on another: %+v", paused.Spec.Modules, err, a.Spec.Modules)
	}
}
