// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Progress of fewer than one in so many nodes waits for more, but for no longer than a time: a load
// costs no more writes of Module.status because it takes longer, or because there are more nodes.
const (
	progressShare = 20
	progressRest  = 30 * time.Second
)

// progress is when statuses were last written, by Module. A new process writes the first at once.
type progress struct {
	mu      sync.Mutex
	written map[types.NamespacedName]time.Time
}

// wrote notes a write.
func (p *progress) wrote(module types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == nil {
		p.written = map[types.NamespacedName]time.Time{}
	}
	p.written[module] = now
}

// rest is how long a status waits that differs from what is written; 0: it does not.
func (p *progress) rest(module types.NamespacedName, before, after *v1beta1.ModuleStatus, now time.Time) time.Duration {
	p.mu.Lock()
	last, ok := p.written[module]
	p.mu.Unlock()
	if !ok || !little(before, after) {
		return 0
	}
	// A clock that was set back must not make it wait for longer than the bound.
	return min(max(last.Add(progressRest).Sub(now), 0), progressRest)
}

// forget drops a Module that is gone.
func (p *progress) forget(module types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, module)
}

// little reports whether two statuses say the same but for what messages tell and for how many of
// many nodes.
func little(before, after *v1beta1.ModuleStatus) bool {
	was, is := numbers(before), numbers(after)
	nodes, most := slices.Max(is), int32(1) // a message can tell of one node more
	for i := range is {
		most = max(most, is[i]-was[i], was[i]-is[i])
	}
	return most*progressShare < nodes && equality.Semantic.DeepEqual(without(before), without(after))
}

// numbers are all that a status counts.
func numbers(s *v1beta1.ModuleStatus) []int32 {
	var all []int32
	for _, n := range []*v1beta1.DaemonSetStatus{&s.ModuleLoader, &s.DevicePlugin, &s.DRA} {
		all = append(all, n.NodesMatchingSelectorNumber, n.DesiredNumber, n.AvailableNumber)
	}
	return all
}

// without is a status without numbers and messages.
func without(s *v1beta1.ModuleStatus) v1beta1.ModuleStatus {
	bare := *s
	bare.ModuleLoader, bare.DevicePlugin, bare.DRA = v1beta1.DaemonSetStatus{}, v1beta1.DaemonSetStatus{}, v1beta1.DaemonSetStatus{}
	bare.Conditions = slices.Clone(s.Conditions)
	for i := range bare.Conditions {
		bare.Conditions[i].Message = ""
	}
	return bare
}
