// SPDX-License-Identifier: Apache-2.0

// Package budget bounds how many nodes of a pool the changes of all Modules together make
// unavailable. Each Module has its own maxUnavailable besides.
//
// A node that is unavailable for one Module may be changed for others at the same time: that needs
// no place, and comes first. What is known of other Modules is in the memory of the process. A new
// one gives no place until each Module has been looked at, for at most [patience].
package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const (
	// patience is how long a new process waits for Modules that it has not looked at.
	patience = time.Minute
	// fresh is how long a Module that waits for a place is waited for without another word of it.
	fresh = 30 * time.Second
	// stall is how long a change may take from node to order, and from order to kernel, before it
	// holds other Modules up no longer: a webhook refuses the order, or pods use the kernel module
	// and nothing drains them.
	stall = 10 * time.Minute
)

// Limit is the administrator's.
type Limit struct {
	// Nodes of a pool, a number or a percentage, rounded down, but at least one; empty: any number.
	Nodes string
	// PoolLabel is the node label whose values are the pools; empty: all nodes are one.
	PoolLabel string
}

// ErrLimit says that a limit is neither a number from 1 on nor a percentage.
var ErrLimit = errors.New("is neither a number of nodes from 1 on nor a percentage from 1% to 100%")

// of is the limit of a pool with so many nodes.
func (l Limit) of(total int) (int, error) {
	value := intstr.Parse(l.Nodes)
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, total, false)
	if err != nil {
		return 0, fmt.Errorf("%q %w", l.Nodes, ErrLimit)
	}
	return max(n, 1), nil
}

// Check says whether the limit can be read.
func (l Limit) Check() error {
	if l.Nodes == "" {
		if l.PoolLabel != "" {
			return errors.New("a number or a percentage is missing: --node-pool-label has no effect without it")
		}
		return nil
	}
	hundred, err := l.of(100)
	if value := intstr.Parse(l.Nodes); err == nil && (value.Type == intstr.Int && value.IntVal < 1 || value.Type == intstr.String &&
		(value.StrVal == "0%" || hundred > 100)) {
		err = fmt.Errorf("%q %w", l.Nodes, ErrLimit)
	}
	return err
}

// Budget is what the Modules of a process share. The nil Budget has no limit.
type Budget struct {
	limit Limit

	mu      sync.Mutex
	began   time.Time
	modules map[types.NamespacedName]*share
}

// share is one Module's.
type share struct {
	open  map[string]visit     // nodes where its change is under way
	waits map[string]time.Time // since when it waits for a place, by pool
	// next, line and spare as in the last plan.
	next, line []string
	spare      int
	seen       time.Time // its last pass
}

// visit is what goes on on a node, since when and, where the node is kept for other Modules, until
// when: no event of this one tells that they are done.
type visit struct {
	rollout.Visit
	since, until time.Time
}

// New makes a budget; nil where there is no limit. The limit has been checked.
func New(limit Limit, now time.Time) *Budget {
	if limit.Nodes == "" {
		return nil
	}
	return &Budget{limit: limit, began: now, modules: map[types.NamespacedName]*share{}}
}

// Pass is what a Module's plan is made of.
type Pass struct {
	Module types.NamespacedName
	// Modules are the keys of all whose changes go from node to node.
	Modules []types.NamespacedName
	Nodes   []*corev1.Node // all of the cluster
	Parts   []rollout.Node
	Policy  rollout.Policy
	Now     time.Time
}

// Plan makes the Module's plan within the budget, and notes what it makes unavailable.
func (b *Budget) Plan(p Pass) *rollout.Plan { return b.plan(&p, true) }

// Tell makes it, and notes nothing: it is not carried out.
func (b *Budget) Tell(p Pass) *rollout.Plan { return b.plan(&p, false) }

func (b *Budget) plan(p *Pass, note bool) *rollout.Plan {
	if b == nil {
		return rollout.Make(p.Parts, p.Policy, p.Now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	pools := b.join(p, note)
	plan := rollout.Make(p.Parts, p.Policy, p.Now)
	b.await(p, plan)
	if note {
		b.note(p, plan, pools)
	}
	return plan
}

// join tells the plan's nodes and policy of the other Modules, and returns the pools of all nodes.
func (b *Budget) join(p *Pass, note bool) (pools map[string]string) {
	pools = make(map[string]string, len(p.Nodes))
	total, away := map[string]int{}, map[string]int{}
	for _, n := range p.Nodes {
		pool := n.Labels[b.limit.PoolLabel]
		pools[n.Name] = pool
		total[pool]++
		if !placement.Ready(n) {
			away[pool]++
		}
	}
	visited := b.visited(p.Module, p.Now)
	used := map[string]int{}
	for _, n := range p.Nodes {
		if visited[n.Name] && placement.Ready(n) {
			used[pools[n.Name]]++
		}
	}
	mine := b.modules[p.Module]
	for i := range p.Parts {
		n := &p.Parts[i]
		n.Pool, n.Visited = pools[n.Name], visited[n.Name]
		if mine != nil {
			_, n.Opened = mine.open[n.Name]
		}
	}
	unknown := b.unknown(p)
	if unknown && !note {
		return pools
	}
	p.Policy.Pools = map[string]int{}
	if unknown {
		return pools
	}
	for pool, nodes := range total {
		limit, _ := b.limit.of(nodes)
		p.Policy.Pools[pool] = limit - away[pool] - used[pool] - b.before(p, pool)
	}
	return pools
}

// await keeps nodes open on which another Module is about to begin: they take no pods between the
// two changes.
func (b *Budget) await(p *Pass, plan *rollout.Plan) {
	joined := map[string]bool{}
	for key, s := range b.modules {
		if key == p.Module || !within(fresh, s.seen, p.Now) {
			continue
		}
		visited, spare := b.visited(key, p.Now), s.spare
		for _, name := range s.next {
			joined[name] = joined[name] || visited[name]
		}
		for _, name := range s.line {
			if visited[name] && spare > 0 {
				joined[name] = true
				spare--
			}
		}
	}
	plan.Awaited = map[string]time.Time{}
	for i := range p.Parts {
		n := &p.Parts[i]
		age := p.Now.Sub(n.Since)
		// Without a soak time, it is the node's clock that says since when.
		if !joined[n.Name] || n.Stage != rollout.Given || n.Since.IsZero() || n.Failed != "" ||
			age < -rollout.JoinTime || age >= rollout.JoinTime {
			continue
		}
		plan.Awaited[n.Name] = n.Since.Add(rollout.JoinTime)
		plan.Open[n.Name] = rollout.Holds
	}
}

// over reports whether a visit no longer counts for others.
func (v visit) over(now time.Time) bool {
	stalled := (v.Visit == rollout.Begins || v.Visit == rollout.Changes) && now.Sub(v.since) >= stall
	return stalled || !v.until.IsZero() && !now.Before(v.until)
}

// visited are the nodes where other Modules' changes are under way, and have not stalled.
func (b *Budget) visited(but types.NamespacedName, now time.Time) map[string]bool {
	all := map[string]bool{}
	for key, s := range b.modules {
		if key == but {
			continue
		}
		for name, v := range s.open {
			if !v.over(now) {
				all[name] = true
			}
		}
	}
	return all
}

// unknown reports whether a Module has not been looked at, which may have nodes under way.
func (b *Budget) unknown(p *Pass) bool {
	if !within(patience, b.began, p.Now) {
		return false
	}
	for _, key := range p.Modules {
		if key != p.Module && b.modules[key] == nil {
			return true
		}
	}
	return false
}

// within reports whether something was no longer ago. What a clock that went back has in its future
// was long ago.
func within(long time.Duration, at, now time.Time) bool {
	age := now.Sub(at)
	return age >= 0 && age < long
}

// before is how many other Modules have waited longer for a place in a pool. Each gets the next one
// before this Module gets another.
func (b *Budget) before(p *Pass, pool string) (n int) {
	since := p.Now
	if mine := b.modules[p.Module]; mine != nil && !mine.waits[pool].IsZero() {
		since = mine.waits[pool]
	}
	for key, s := range b.modules {
		at, waits := s.waits[pool]
		if key != p.Module && waits && at.Before(since) && within(fresh, s.seen, p.Now) {
			n++
		}
	}
	return n
}

func (b *Budget) note(p *Pass, plan *rollout.Plan, pools map[string]string) {
	was := b.modules[p.Module]
	is := &share{open: make(map[string]visit, len(plan.Open)), waits: map[string]time.Time{}, seen: p.Now,
		next: plan.Next, line: plan.Line, spare: plan.Spare}
	for name, v := range plan.Open {
		since := p.Now
		if was != nil && was.open[name].Visit == v {
			since = was.open[name].since
		}
		is.open[name] = visit{v, since, plan.Awaited[name]}
	}
	for _, name := range plan.Crowded {
		pool := pools[name]
		if is.waits[pool] = p.Now; was != nil && !was.waits[pool].IsZero() {
			is.waits[pool] = was.waits[pool]
		}
	}
	b.modules[p.Module] = is
}

// Sharing are the Modules whose changes go from node to node, where a budget asks for them.
func Sharing(ctx context.Context, c client.Client, b *Budget) ([]types.NamespacedName, error) {
	if b == nil {
		return nil, nil
	}
	modules, err := kube.All[v1beta1.Module](ctx, c, &v1beta1.ModuleList{}, kube.AsIs)
	if err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	var keys []types.NamespacedName
	for _, m := range modules {
		if m.DeletionTimestamp == nil && !rollout.Labelled(m) {
			keys = append(keys, client.ObjectKeyFromObject(m))
		}
	}
	return keys, nil
}

// Forget drops a Module that is gone, or whose changes no longer go from node to node.
func (b *Budget) Forget(module types.NamespacedName) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.modules, module)
}
