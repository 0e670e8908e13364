// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// AllNodes is the node name under which a problem stands that concerns every node of a Module.
const AllNodes = ""

// Board holds the problems that no API object shows: a carrier pod that the API server refused does not exist, so only
// who tried to create it knows. The zero value is ready to use. After a restart it fills again with the next tries.
type Board struct {
	mu       sync.Mutex
	problems map[types.NamespacedName]map[string]Problem
	queues   []workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Report replaces what is known about a Module: problems by node name (AllNodes for all of them).
// Readers are told only when something changed.
func (b *Board) Report(module types.NamespacedName, problems map[string]Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if maps.Equal(b.problems[module], problems) {
		return
	}
	if b.problems == nil {
		b.problems = map[types.NamespacedName]map[string]Problem{}
	}
	if len(problems) == 0 {
		delete(b.problems, module)
	} else {
		b.problems[module] = maps.Clone(problems)
	}
	for _, q := range b.queues {
		q.Add(reconcile.Request{NamespacedName: module})
	}
}

// For returns what is known about a Module: problems by node name. The map is the caller's.
func (b *Board) For(module types.NamespacedName) map[string]Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.problems[module])
}

// Source feeds a controller whose requests are Modules with every Module whose problems changed.
func (b *Board) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queues = append(b.queues, queue)
		return nil
	})
}
