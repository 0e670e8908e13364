// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/test/chaos/judge"
)

const (
	// notice is how long the API must have shown that a node is down until an order for another may
	// not be given any more: a watch has to bring it, and an order that is being written is not taken
	// back.
	notice = 2 * time.Second
	// unknown is what the result says before anything was judged.
	unknown = -1
	// shown is how many findings are printed.
	shown = 10
)

// judge reads the journals of all kernels, then the audit log, and fills the result. In this order,
// also a run that was ended in the middle has all orders in the log that the calls before followed.
func (s *scene) judge(ctx context.Context) error {
	journal, err := s.f.Journal(ctx)
	if err != nil {
		return err
	}
	requests, err := s.log.Next()
	if err != nil {
		return err
	}
	if err := s.history.Add(requests); err != nil {
		return err
	}
	s.result.UnaskedUnloads = 0
	var nodes []judge.Node
	var reloads []judge.Reload
	for name, calls := range journal {
		n, gaps := s.history.Node(name)
		n.Calls = calls
		nodes = append(nodes, n)
		account := judge.Explain(n, kernelName, key.String())
		reloads = append(reloads, account.Reloads...)
		s.count(n, account, gaps)
	}
	limits := judge.Judge(nodes, reloads, judge.Rule{Module: kernelName, Limit: s.limit, Notice: notice})
	s.tell("over the limit", limits.Exceeded)
	r := &s.result
	r.LimitExceeded, r.ReloadsJudged, r.ReloadsWhileDown, r.MostUnavailable = len(limits.Exceeded), limits.Judged, limits.WhileDown,
		limits.Most
	for i := range nodes {
		nodes[i].Calls = slices.DeleteFunc(nodes[i].Calls, func(c fake.Call) bool { return !s.deleted.IsZero() && c.Time.After(s.deleted) })
	}
	r.MostDown = judge.Down(nodes, kernelName)
	r.OutageSeconds = s.away.Round(100 * time.Millisecond).Seconds()
	r.OperatorKills, r.OperatorExits = int(s.killer.kills.Load()), int(s.killer.exits.Load())
	return nil
}

// count adds what one node says.
func (s *scene) count(n judge.Node, a judge.Account, gaps int) {
	r := &s.result
	r.HistoryGaps += gaps
	r.UnaskedUnloads += len(a.Unasked)
	r.WrongLoads += len(a.WrongLoads)
	r.Reloads += len(a.Reloads)
	r.Removals += a.Removals
	s.tell("unasked", a.Unasked)
	s.tell("wrong load", a.WrongLoads)
	r.count(n.Calls)
	for _, o := range n.Orders {
		if !strings.HasPrefix(o.By, "drover-operator/") {
			continue
		}
		r.OrdersWritten++
		for _, killing := range s.killer.spans {
			if o.Received.After(killing.begin) && o.Received.Before(killing.end) {
				r.OrdersUnderKills++
			}
		}
	}
}

func (r *result) count(calls []fake.Call) {
	for _, c := range calls {
		switch {
		case c.Call == "reboot":
			r.Reboots++
		case c.Call == "finit_module" && c.Result == "":
			r.Loads++
		}
	}
}

// limit is how many nodes may be unavailable under the policy of the upgrade that an order belongs
// to.
func (s *scene) limit(o judge.Order) int {
	for _, u := range s.upgrades {
		if strings.Contains(o.Image, fmt.Sprintf(":%s-", u.version)) {
			return u.limit
		}
	}
	return s.nodes
}

func (s *scene) tell(what string, findings []judge.Finding) {
	for i, f := range findings {
		if i == shown {
			s.say("… and %d more", len(findings)-shown)
			return
		}
		s.say("%s: %s", what, f)
	}
}
