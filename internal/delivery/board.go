// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/reasons"
)

// AllNodes is the node name under which a problem stands that concerns every node of a Module.
const AllNodes = ""

// Board holds the problems that no API object shows: a carrier pod that the API server refused does not exist, so only
// who tried to create it knows. The zero value is ready to use. After a restart it fills again with the next tries.
type Board struct {
	mu       sync.Mutex
	problems map[types.NamespacedName]map[string]reasons.Problem
	watchers []func(types.NamespacedName)
}

// Report replaces what is known about a Module: problems by node name (AllNodes for all of them).
// Readers are told only when something changed.
func (b *Board) Report(module types.NamespacedName, problems map[string]reasons.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if maps.Equal(b.problems[module], problems) {
		return
	}
	if b.problems == nil {
		b.problems = map[types.NamespacedName]map[string]reasons.Problem{}
	}
	if len(problems) == 0 {
		delete(b.problems, module)
	} else {
		b.problems[module] = maps.Clone(problems)
	}
	for _, changed := range b.watchers {
		changed(module)
	}
}

// For returns what is known about a Module: problems by node name. The map is the caller's.
func (b *Board) For(module types.NamespacedName) map[string]reasons.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.problems[module])
}

// Watch calls changed with every Module whose problems change from now on. changed must return at once, and must not use
// the board.
func (b *Board) Watch(changed func(module types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers = append(b.watchers, changed)
}
