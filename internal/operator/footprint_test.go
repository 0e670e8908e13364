// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestMemoryOfANodeAndModule reads what an API server sends for 500 nodes with 20 Modules each, as
// a watch does.
func TestMemoryOfANodeAndModule(t *testing.T) {
	const nodes, modules = 500, 20
	cases := map[string]struct {
		given func(*v1beta1.NodeModulesConfig)
		// then is how much heap a node and Module may take in the cache, bytes;
		// docs/reference/configuration.md reckons with 1,024.
		then int64
	}{
		"all nodes are alike":          {then: 512},
		"each node waits for delivery": {given: func(c *v1beta1.NodeModulesConfig) { c.Status.Artifacts = c.Status.Artifacts[1:] }, then: 1024},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			kept := make([]any, 0, nodes)
			before := heap()
			for i := range nodes {
				config := full(i, modules)
				if test.given != nil {
					test.given(config)
				}
				kept = append(kept, cached(t, config))
			}
			pair := (heap() - before) / (nodes * modules)
			runtime.KeepAlive(kept)
			t.Logf("%d bytes per node and Module", pair)
			if pair > test.then {
				t.Errorf("%d bytes per node and Module, more than %d", pair, test.then)
			}
		})
	}
}

// cached is what the cache keeps of what an API server sends.
func cached(t *testing.T, sent *v1beta1.NodeModulesConfig) any {
	t.Helper()
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	read := &v1beta1.NodeModulesConfig{}
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	object, err := slimConfig(read)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // bounded by the machine
}

// full is a node on which all Modules are live.
func full(node, modules int) *v1beta1.NodeModulesConfig {
	name := fmt.Sprintf("node-%04d", node)
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("0b9ee5a1-3b9e-4f39-9ba4-" + name), Labels: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}},
	}}
	at := metav1.NewTime(time.Date(2030, 1, 1, 12, 0, node%60, 0, time.UTC))
	for i := range modules {
		item := v1beta1.ModuleItem{Namespace: "drivers", Name: fmt.Sprintf("vendor-driver-%d", i), ServiceAccountName: "default"}
		id := fmt.Sprintf("%064d", i)
		config := v1beta1.ModuleConfig{
			KernelVersion: "6.12.57+deb13-amd64", ContainerImage: "registry.example.com/drivers/" + item.Name + ":6.12.57_deb13-amd64",
			ImagePullPolicy: "IfNotPresent",
			Modprobe: v1beta1.ModprobeSpec{ModuleName: fmt.Sprintf("vendor_driver_%d", i), DirName: "/opt",
				Parameters: []string{"mode=fast"}},
		}
		c.Spec.Modules = append(c.Spec.Modules, v1beta1.NodeModuleSpec{
			ModuleItem: item, Config: config, Delivery: &v1beta1.Delivery{ID: id, CarrierUID: types.UID(fmt.Sprintf("c-%032d-%d", node, i))},
		})
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{
			ModuleItem: item, Config: &config, BootID: "5f0c1f5e-9f0a-4d0d-8d67-" + name, LastTransitionTime: at,
			Observed: &v1beta1.ObservedModule{Delivery: id, BuildID: fmt.Sprintf("%040d", i), SrcVersion: fmt.Sprintf("%023d", i), LoadBegan: &at,
				Taint: "OE"},
		})
		c.Status.Artifacts = append(c.Status.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: fmt.Sprintf("%064d", i)})
		c.Labels[v1beta1.InUseLabel(item.Namespace, item.Name)], c.Labels[v1beta1.ConfiguredLabel(item.Namespace, item.Name)] = "", ""
	}
	return c
}
