// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

// mostNamed is how many nodes a line names.
const mostNamed = 5

func (v *verdict) headline(p paint.Painter) string {
	text := p.Strong(v.Answer) + "\n"
	if v.Next != "" {
		text += "Next step: " + v.Next + "\n"
	}
	return text
}

func (t *Trace) render(p paint.Painter, missing []cluster.Missing) string {
	var b strings.Builder
	b.WriteString(t.headline(p) + "\n")
	for _, s := range t.Steps {
		text := s.Text
		if s.Reason != "" && text != "" {
			text = s.Reason + ": " + text
		} else if s.Reason != "" {
			text = s.Reason
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %s  %-10s  %s", mark(p, s.State), s.Name, indent(text, 23)), " ") + "\n")
	}
	if t.Timeline != nil {
		b.WriteString(t.Timeline.render(p))
	}
	return b.String() + cluster.Tell(missing)
}

func (f *Fleet) render(p paint.Painter, m *v1beta1.Module) string {
	var b strings.Builder
	b.WriteString(f.headline(p))
	for i, c := range f.Causes {
		b.WriteString("\n" + mark(p, c.State) + "  " + c.headline() + "\n")
		if c.Message != "" {
			b.WriteString("         " + indent(c.Message, 9) + "\n")
		}
		if i > 0 && c.Next != "" && c.Next != f.Next {
			b.WriteString("         Next step: " + c.Next + "\n")
		}
		if len(c.Nodes) > 0 && c.State != No {
			which := "In full: "
			if len(c.Nodes) > 1 {
				which = "One of them in full: "
			}
			b.WriteString("         " + which + command("explain", m, c.Nodes[0]) + "\n")
		}
	}
	if len(f.Fine) > 0 {
		b.WriteString("\n" + mark(p, OK) + "  live on " + words.Count(len(f.Fine), "node") + ": " + words.List(f.Fine, mostNamed) + "\n")
	}
	return b.String() + cluster.Tell(f.Missing)
}

func (c *Cause) headline() string {
	switch where := words.Count(len(c.Nodes), "node") + ": " + words.List(c.Nodes, mostNamed); {
	case len(c.Nodes) == 0:
		return c.Reason
	case c.Reason == "":
		return where
	default:
		return c.Reason + " on " + where
	}
}

func mark(p paint.Painter, s State) string {
	switch s {
	case OK:
		return p.Good("ok     ")
	case Failed:
		return p.Bad("FAILED ")
	case Waiting:
		return p.Slow("waiting")
	case Unknown:
		return p.Slow("unseen ")
	case Open:
		return p.Faint("-      ")
	case No:
		return p.Faint("no     ")
	}
	return string(s)
}

func indent(text string, by int) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", by))
}
