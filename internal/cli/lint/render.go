// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/build/fit"
	"github.com/drover-project/drover/internal/cli/paint"
)

// all are the findings about the image as a whole, then by platform.
func (r *Report) all() []fit.Finding {
	all := slices.Clone(r.Findings)
	for _, platform := range r.Platforms {
		all = append(all, platform.Findings...)
	}
	return all
}

func (r *Report) worst() *fit.Finding {
	all := r.all()
	if i := slices.IndexFunc(all, func(f fit.Finding) bool { return f.State == fit.Failed }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (r *Report) unchecked() string {
	n := len(slices.DeleteFunc(r.all(), func(f fit.Finding) bool { return f.State != fit.Unchecked }))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d checks need more facts, see below", n)
}

func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	if f := r.worst(); f != nil {
		what := "The image does not fit kernel " + r.Kernel
		if f.Check == checkMapping {
			what = "There is no image for kernel " + r.Kernel
		}
		if f.Module != "" {
			what = "Module " + f.Module + " of the image does not fit kernel " + r.Kernel
		}
		b.WriteString(p.Strong(what+": "+f.Reason+".") + "\n")
		if step := f.Next(); step != "" {
			b.WriteString("Next step: " + step + "\n")
		}
	} else {
		b.WriteString(p.Strong("No check failed for kernel "+r.Kernel+r.unchecked()+".") + "\n")
	}
	if len(r.Findings) > 0 {
		b.WriteString("\n")
		tell(&b, p, r.Findings)
	}
	for _, platform := range r.Platforms {
		b.WriteString("\n" + platform.Platform + "\n")
		tell(&b, p, platform.Findings)
	}
	return b.String()
}

func tell(b *strings.Builder, p paint.Painter, findings []fit.Finding) {
	for _, f := range findings {
		text := f.Text
		if f.Reason != "" {
			text = f.Reason + ": " + text
		}
		fmt.Fprintf(b, "  %s  %-14s  %-12s  %s\n", mark(p, f.State), f.Module, f.Check, text)
	}
}

func mark(p paint.Painter, s fit.State) string {
	switch s {
	case fit.OK:
		return p.Good("ok       ")
	case fit.Failed:
		return p.Bad("FAILED   ")
	case fit.Unchecked:
	}
	return p.Slow("unchecked")
}
