// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

func (p *Plan) fine() bool {
	return p.Refused == "" &&
		!slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action == NotCovered || s.Action == Blocked })
}

func (p *Plan) answer(seen bool) string {
	kind := "changed"
	if p.New {
		kind = "new"
	}
	switch {
	case p.Refused != "":
		return fmt.Sprintf("Module %s (%s) would be refused.", p.Module, kind)
	case !seen:
		return fmt.Sprintf("Module %s (%s): you may not see what would happen on nodes.", p.Module, kind)
	}
	count := map[Action]int{}
	for _, s := range p.Steps {
		count[s.Action] += len(s.Nodes)
	}
	var parts []string
	for _, action := range []Action{Load, Reload, Unload, NotCovered, Blocked, LeftAlone, Unchanged} {
		if n := count[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Module %s (%s) concerns no node of this cluster.", p.Module, kind)
	}
	return fmt.Sprintf("Module %s (%s): %s.", p.Module, kind, strings.Join(parts, ", "))
}

func (p *Plan) render(c paint.Painter, seen bool) string {
	var b strings.Builder
	b.WriteString(c.Strong(p.answer(seen)) + "\n")
	switch {
	case p.Refused != "":
		b.WriteString("The API server says: " + p.Refused + "\n")
	case p.Unasked != "":
		b.WriteString("Admission was not tried: " + p.Unasked + "\n")
	default:
		b.WriteString("The API server would take it (dry run); nothing was changed.\n")
	}
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "\n%s  %d: %s\n", paintAction(c, s.Action), len(s.Nodes), words.List(s.Nodes, most))
		if s.Why != "" {
			fmt.Fprintf(&b, "             %s\n", s.Why)
		}
	}
	b.WriteString(p.Rollout.render(c))
	if p.Plugin != "" {
		fmt.Fprintf(&b, "\nDevice plugin or DRA driver: %s\n", p.Plugin)
	}
	b.WriteString(cluster.Tell(p.Missing))
	return b.String()
}

func paintAction(c paint.Painter, action Action) string {
	text := fmt.Sprintf("%-11s", strings.ToUpper(string(action)))
	switch action {
	case NotCovered, Blocked, Unload:
		return c.Bad(text)
	case Reload:
		return c.Slow(text)
	case Load:
		return c.Good(text)
	case LeftAlone, Unchanged:
	}
	return c.Faint(text)
}

// most is how many nodes or steps are named.
const most = 8
