// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/facts"
)

// memory holds what every Module's current generation asks for.
type memory struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*facts.Asks
}

// of returns what a Module asks for. Only the pass of that Module uses the result; it keeps module.
func (m *memory) of(module *v1beta1.Module) *facts.Asks {
	key := client.ObjectKeyFromObject(module)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.known[key]; a != nil && a.Of(module) {
		return a
	}
	a := facts.NewAsks(module)
	m.known[key] = a
	return a
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}
