// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"sync"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// want holds the newest NodeModulesConfig that is known. A reflector fills it; it is the reflector's store.
type want struct {
	changed chan struct{}

	mu     sync.Mutex
	listed bool
	object *v1beta1.NodeModulesConfig
}

func newWant() *want { return &want{changed: make(chan struct{}, 1)} }

// get returns the object (nil: there is none) and whether the API server has answered yet.
// The object is shared and must not be changed.
func (w *want) get() (object *v1beta1.NodeModulesConfig, listed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object, w.listed
}

func (w *want) set(object *v1beta1.NodeModulesConfig) {
	w.mu.Lock()
	w.object, w.listed = object, true
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Add takes an object that appeared.
func (w *want) Add(obj any) error {
	n, ok := obj.(*v1beta1.NodeModulesConfig)
	if !ok {
		return fmt.Errorf("the watch sent a %T", obj)
	}
	n.ManagedFields = nil
	w.set(n)
	return nil
}

// Update takes an object that changed.
func (w *want) Update(obj any) error { return w.Add(obj) }

// Delete takes note that there is no object.
func (w *want) Delete(any) error {
	w.set(nil)
	return nil
}

// Replace takes the result of a list: our object or nothing.
func (w *want) Replace(list []any, _ string) error {
	if len(list) == 0 {
		w.set(nil)
		return nil
	}
	return w.Add(list[0])
}

// Resync has nothing to do.
func (w *want) Resync() error { return nil }
