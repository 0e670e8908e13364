// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/drover-project/drover/internal/agent/hollow"
)

// TestWorld: what is wanted of a kernel follows from the Module's edits and the node's labels, and
// what the API is told follows from the same.
func TestWorld(t *testing.T) {
	w := newWorld(20, modules)
	everywhere, labelled := w.modules[0], w.modules[w.labelled(0)]
	if labelled.label == "" || everywhere.label != "" {
		t.Fatalf("Module %s has the label %q, Module %s %q", labelled.name(), labelled.label, everywhere.name(), everywhere.label)
	}
	count := func(m *wantedModule) (n int) {
		for _, node := range w.nodes {
			if m.selects(node) {
				n++
			}
		}
		return n
	}
	if a, b := count(everywhere), count(labelled); a != 20 || b != 15 {
		t.Errorf("of 20 nodes, one Module selects %d and the other %d", a, b)
	}
	everywhere.narrow = true
	if n := count(everywhere); n != 16 {
		t.Errorf("narrowed to a tier of 16 nodes, a Module selects %d", n)
	}
	delete(w.nodes[1].labels, labelled.label)
	if n := count(labelled); n != 14 {
		t.Errorf("without the label on one of 15 nodes, a Module selects %d", n)
	}

	everywhere.version, everywhere.params = 7, 3
	id, value := everywhere.build("6.12.57+deb12-amd64")
	want := hollow.BuildID("registry.example.com/soak/soak0:7-6.12.57_deb12-amd64", "6.12.57+deb12-amd64", "soak0")
	if id != want || value != "3" {
		t.Errorf("a kernel must hold build %s with %s, want %s with 3", id, value, want)
	}
	spec, _ := everywhere.patch()["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	if len(selector) != 2 || selector[tierLabel] != "a" {
		t.Errorf("the API is told to select %v", selector)
	}
	everywhere.narrow = false
	spec, _ = everywhere.patch()["spec"].(map[string]any)
	selector, _ = spec["selector"].(map[string]any)
	if tier, told := selector[tierLabel]; !told || tier != nil {
		t.Errorf("the API is not told to forget the tier: %v", selector)
	}
}
