// SPDX-License-Identifier: Apache-2.0

// Package doctor is `drover doctor`: whether a cluster can take Drover and, once it is installed,
// whether all of it is there and fits together.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

type options struct {
	genericiooptions.IOStreams
	flags  *genericclioptions.ConfigFlags
	clock  clock.PassiveClock
	format output.Format
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, flags: flags, clock: clock}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at a cluster before and after the installation, and say what to do",
		Long: "Look at a cluster before and after the installation, and say per check what is wrong and what to do.\n" +
			"It reads, and changes nothing. What your rights do not show is UNSEEN, with the missing right.\n\n" +
			"Exit codes: 0 no check fails, 1 one fails, 2 the command failed.",
		Example: "  drover doctor\n  drover doctor -o json | jq '.checks[] | select(.state != \"OK\")'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.format.AddFlag(cmd, false)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	config, _, err := cluster.Config(o.flags)
	if err != nil {
		return err
	}
	s, err := Gather(ctx, config, o.clock)
	if err != nil {
		return err
	}
	r := Examine(s)
	p := paint.For(o.Out)
	if err := o.format.Print(o.Out, r, func(out io.Writer) { r.render(out, p) }); err != nil {
		return err
	}
	if r.Failed > 0 {
		return exit.ErrNotReady
	}
	return nil
}

// State of a check.
type State string

// States, from good to bad. Unseen is none of them: rights are missing.
const (
	OK     State = "OK"
	Warn   State = "WARN"
	Fail   State = "FAIL"
	Unseen State = "UNSEEN"
)

// Finding is what a check found.
type Finding struct {
	Check   string `json:"check"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Next is what to do.
	Next string `json:"next,omitempty"`
}

// Report is all that was found.
type Report struct {
	// Installed: Drover is seen. The check install is UNSEEN where that cannot be told.
	Installed bool      `json:"installed"`
	Failed    int       `json:"failed"`
	Warnings  int       `json:"warnings"`
	Unseen    int       `json:"unseen"`
	Checks    []Finding `json:"checks"`
	// lacks is the right without which nobody can tell whether Drover is installed.
	lacks string
}

// check judges a snapshot. A check that found nothing wrong says so.
type check struct {
	name string
	run  func(*Snapshot) []Finding
}

// checks in the order in which they are printed: the cluster, what Drover brought, the nodes.
var checks = []check{
	{"kubernetes", kubernetesVersion}, {"features", features}, {"admission", admission}, {"silent-apis", silentAPIs},
	{"clocks", clocks}, {"definitions", definitions}, {"conversion", conversions}, {"kmm", peers}, {"webhooks", webhooks},
	{"pod-security", podSecurity}, {"install", installed}, {"trial", trial}, {"policies", policies}, {"operator", operator},
	{"agents", agents}, {"coverage", coverage}, {"versions", versions}, {"nodes", nodes}, {"lockdown", lockdown},
	{"module-policies", modulePolicies}, {"leftovers", leftovers}, {"marks", marks},
}

// Examine runs all checks.
func Examine(s *Snapshot) *Report {
	r := &Report{Installed: s.Installed(), lacks: s.Unseen[partWorkloads]}
	for _, c := range checks {
		for _, f := range c.run(s) {
			f.Check = c.name
			switch f.State {
			case Fail:
				r.Failed++
			case Warn:
				r.Warnings++
			case Unseen:
				r.Unseen++
			case OK:
			}
			r.Checks = append(r.Checks, f)
		}
	}
	return r
}

// answer is the first line.
func (r *Report) answer() string {
	notes := ""
	if r.Warnings > 0 {
		notes = ", with " + words.Count(r.Warnings, "warning")
	}
	switch {
	case r.Failed > 0:
		return fmt.Sprintf("%s failed%s.", words.Count(r.Failed, "check"), notes)
	case !r.Installed && r.lacks != "":
		return fmt.Sprintf("No check failed%s. Whether Drover is installed cannot be told: you lack %s.", notes, r.lacks)
	case !r.Installed:
		return fmt.Sprintf("This cluster can take Drover, which is not installed%s.", notes)
	}
	return fmt.Sprintf("Drover is well installed%s.", notes)
}

func (r *Report) render(out io.Writer, p paint.Painter) {
	_, _ = fmt.Fprintf(out, "%s\n\n", p.Strong(r.answer()))
	for _, f := range r.Checks {
		_, _ = fmt.Fprintf(out, "%s  %-15s  %s\n", f.State.painted(p), f.Check, strings.TrimSpace(f.Message))
		if f.Next != "" {
			_, _ = fmt.Fprintf(out, "%25s%s\n", "", "Next step: "+f.Next)
		}
	}
}

func (s State) painted(p paint.Painter) string {
	text := fmt.Sprintf("%-6s", string(s))
	switch s {
	case OK:
		return p.Good(text)
	case Warn:
		return p.Slow(text)
	case Fail:
		return p.Bad(text)
	case Unseen:
	}
	return p.Faint(text)
}

func ok(format string, args ...any) []Finding {
	return []Finding{{State: OK, Message: fmt.Sprintf(format, args...)}}
}

func warn(next, format string, args ...any) []Finding {
	return []Finding{{State: Warn, Message: fmt.Sprintf(format, args...), Next: next}}
}

func fail(next, format string, args ...any) []Finding {
	return []Finding{{State: Fail, Message: fmt.Sprintf(format, args...), Next: next}}
}

// hidden says which of the parts that a check needs are not seen.
func (s *Snapshot) hidden(parts ...string) []Finding {
	for _, p := range parts {
		if right := s.Unseen[p]; right != "" {
			return []Finding{{State: Unseen, Message: p + " are not seen: you lack " + right}}
		}
	}
	return nil
}
