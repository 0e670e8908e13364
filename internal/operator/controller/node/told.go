// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/shared/reasons"
)

// told is what has been said about Modules by an event, because no condition can be written. A new
// process says it again.
type told struct {
	problems sync.Map // of types.NamespacedName to reasons.Problem
}

// first reports whether this has not been said about a Module.
func (t *told) first(module types.NamespacedName, p *reasons.Problem) bool {
	before, ok := t.problems.Swap(module, *p)
	return !ok || before != any(*p)
}

func (t *told) forget(module types.NamespacedName) { t.problems.Delete(module) }
