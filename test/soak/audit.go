// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/chaos/judge"
)

const (
	// notice as in test/chaos.
	notice = 2 * time.Second
	// shown is how many findings of a kind are printed.
	shown = 10
	// tooMany is how many refusals of a request, that is 429, tell that Drover was throttled.
	tooMany = 429
)

// auditor keeps what the API server and the kernels wrote down.
type auditor struct {
	log       *audit.Log
	histories []*judge.History
	calls     map[string][]fake.Call
	// last is each object's resource version as a write left it.
	last map[string]string
	// noop counts our writes that changed nothing, by client and resource; idle has who did so last to
	// an object, and when, and repeats tell of who did so again.
	noop    map[string]int
	idle    map[string]time.Time
	repeats []string
	// writes are all of ours, throttled what was answered by 429.
	writes, throttled int
}

func newAuditor(f *fleet.Fleet, w *world) *auditor {
	a := &auditor{log: audit.Whole(f.Cluster.AuditLog), calls: map[string][]fake.Call{}, last: map[string]string{}, noop: map[string]int{},
		idle: map[string]time.Time{}}
	for _, m := range w.modules {
		a.histories = append(a.histories, judge.NewHistory(m.key(), func(image, kernel string) string {
			return hollow.BuildID(image, kernel, m.name())
		}))
	}
	return a
}

// read takes what is new: the kernels' journals, then the audit log, so that all orders are in it
// that the calls followed.
func (a *auditor) read(ctx context.Context, f *fleet.Fleet) error {
	journal, err := f.TakeJournal(ctx)
	if err != nil {
		return err
	}
	for name, calls := range journal {
		a.calls[name] = append(a.calls[name], calls...)
	}
	requests, err := a.log.Next()
	if err != nil {
		return err
	}
	for _, h := range a.histories {
		if err := h.Add(requests); err != nil {
			return err
		}
	}
	for _, r := range requests {
		if err := a.count(r); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) count(r audit.Request) error {
	if r.Ours() && r.ResponseStatus.Code == tooMany {
		a.throttled++
	}
	if !r.IsWrite() || r.ResponseStatus.Code/100 != 2 {
		return nil
	}
	client, _, _ := strings.Cut(r.UserAgent, "/")
	if r.Ours() {
		a.writes++
	}
	if len(r.Object) == 0 {
		return nil
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(r.Object, &object); err != nil {
		return fmt.Errorf("read %s %s %s of the audit log: %w", r.Verb, r.Resource(), r.ObjectRef.Name, err)
	}
	key := r.ObjectRef.Resource + " " + string(object.Metadata.UID)
	if r.Ours() {
		a.compare(client, key, r, a.last[key] == object.Metadata.ResourceVersion)
	}
	a.last[key] = object.Metadata.ResourceVersion
	return nil
}

// compare notes a write of ours by whether it changed nothing.
func (a *auditor) compare(client, key string, r audit.Request, idle bool) {
	who := client + " " + key
	before, again := a.idle[who]
	if !idle {
		delete(a.idle, who)
		return
	}
	a.noop[client+" "+r.Verb+" "+r.Resource()]++
	a.idle[who] = r.Received
	if again {
		a.repeats = append(a.repeats, fmt.Sprintf("%s: %s %s %s %s, as %s before", r.Received.Format(time.StampMilli), client, r.Verb,
			r.Resource(), r.ObjectRef.Name, r.Received.Sub(before).Round(time.Millisecond)))
	}
}

// judge reads what is new and judges all since the beginning.
func (s *scene) judge(ctx context.Context) error {
	if err := s.audit.read(ctx, s.f); err != nil {
		return err
	}
	r := &s.result
	r.UnaskedUnloads, r.WrongLoads, r.LimitExceeded, r.HistoryGaps, r.ReloadsJudged, r.Reloads, r.Removals, r.Loads, r.Boots = 0, 0, 0, 0,
		0, 0, 0, 0, 0
	for i, h := range s.audit.histories {
		s.judgeModule(s.world.modules[i], h)
	}
	for _, calls := range s.audit.calls {
		for _, c := range calls {
			if c.Call == "reboot" {
				r.Boots++
			}
		}
	}
	r.Writes, r.Throttled, r.NoopWrites, r.RepeatedWrites = s.audit.writes, s.audit.throttled, 0, len(s.audit.repeats)
	for _, n := range s.audit.noop {
		r.NoopWrites += n
	}
	for _, line := range s.audit.repeats[s.repeats:] {
		s.say("again without a change: %s", line)
	}
	s.repeats = len(s.audit.repeats)
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	r.OperatorExits, r.OperatorCrashes = s.keeper.exits, s.keeper.crashes
	return nil
}

func (s *scene) judgeModule(m *wantedModule, h *judge.History) {
	r := &s.result
	var nodes []judge.Node
	var reloads []judge.Reload
	for name, calls := range s.audit.calls {
		n, gaps := h.Node(name)
		n.Calls = calls
		nodes = append(nodes, n)
		account := judge.Explain(n, m.name(), m.key().String())
		reloads = append(reloads, account.Reloads...)
		r.HistoryGaps += gaps
		r.UnaskedUnloads += len(account.Unasked)
		r.WrongLoads += len(account.WrongLoads)
		r.Reloads += len(account.Reloads)
		r.Removals += account.Removals
		s.tell("unasked", account.Unasked)
		s.tell("wrong load", account.WrongLoads)
		for _, c := range calls {
			if c.Module == m.name() && c.Call == "finit_module" && c.Result == "" {
				r.Loads++
			}
		}
	}
	limits := judge.Judge(nodes, reloads, judge.Rule{Module: m.name(), Limit: func(judge.Order) int { return m.limit }, Notice: notice})
	s.tell("over the limit", limits.Exceeded)
	r.LimitExceeded += len(limits.Exceeded)
	r.ReloadsJudged += limits.Judged
}

// tell prints findings, each once.
func (s *scene) tell(what string, findings []judge.Finding) {
	for _, f := range findings {
		if line := what + ": " + f.String(); !s.told[line] && len(s.told) < shown {
			s.told[line] = true
			s.say("%s", line)
		}
	}
}
