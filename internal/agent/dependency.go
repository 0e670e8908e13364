// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
)

// against finds the module that a refused step does not fit: one that it needs, and of which another build is live than the plan has. Only
// when the kernel misses a symbol or finds another CRC: a dependency of another build that fits is taken as it is. Names of modules with no
// identity are not compared.
func (p *pass) against(f facts, refused planStep, r report) (dependency planStep, live string, found bool, err error) {
	if r.Reason != v1beta1.ReasonUnknownSymbol {
		return planStep{}, "", false, nil
	}
	needs := slices.Clone(refused.Needs)
	for _, name := range f.order.Config.Modprobe.ModulesLoadingOrder {
		needs = append(needs, kmod.NormalizeName(name))
	}
	for _, s := range f.plan.Steps {
		if s.Name == refused.Name || s.Optional || s.BuildID == "" || !slices.Contains(needs, s.Name) {
			continue
		}
		now, err := p.see([]string{s.Name})
		if err != nil {
			return planStep{}, "", false, err
		}
		if m, ok := now[s.Name]; ok && identity(m.BuildID, m.SrcVersion) != "" && !sameBuild(m, s.BuildID) {
			return s, identity(m.BuildID, m.SrcVersion), true, nil
		}
	}
	return planStep{}, "", false, nil
}

// conflicting is what is reported of a step that does not fit a dependency that is live.
func conflicting(err error, refused, dependency planStep, live string) report {
	answer := err.Error()
	var lines []string
	var call *host.CallError
	if errors.As(err, &call) {
		answer, lines = call.Errno, call.Log
	}
	from := "the image"
	if dependency.FromHost {
		from = "the node's own tree"
	}
	return report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonDependencyConflict, Message: withLog(fmt.Sprintf(
		"The kernel refused %s (%s): it needs %s, of which build %s is live, and %s has build %s. Unload the one that is live, or build %s against it.",
		refused.Name, answer, dependency.Name, live, from, dependency.BuildID, refused.Name), lines)}
}
