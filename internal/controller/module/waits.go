// SPDX-License-Identifier: Apache-2.0

package module

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waits are since when nodes are being emptied. They only say how long it takes, so that a new process may begin anew.
type waits struct {
	mu    sync.Mutex
	since map[types.NamespacedName]map[string]time.Time
}

// keep forgets a Module's nodes that are not being emptied any more.
func (w *waits) keep(key types.NamespacedName, nodes []*vacancy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := map[string]time.Time{}
	for _, v := range nodes {
		if at, known := w.since[key][v.step.view.name]; known && v.open() {
			kept[v.step.view.name] = at
		}
	}
	if w.since == nil {
		w.since = map[types.NamespacedName]map[string]time.Time{}
	}
	delete(w.since, key)
	if len(kept) > 0 {
		w.since[key] = kept
	}
}

// late reports whether a node has been waited for for longer than it may. The first time begins the wait.
func (w *waits) late(key types.NamespacedName, v *vacancy, now time.Time) bool {
	if !v.open() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since[key] == nil {
		w.since[key] = map[string]time.Time{}
	}
	at, known := w.since[key][v.step.view.name]
	if !known {
		w.since[key][v.step.view.name] = now
		return false
	}
	return !now.Before(at.Add(v.timeout()))
}
