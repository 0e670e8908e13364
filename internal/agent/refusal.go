// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
	"github.com/drover-project/drover/internal/kmod/check"
)

// maxRefusals bounds how many refused builds are remembered.
const maxRefusals = 64

// refusal is the kernel's answer to a build. It will not be another one in this boot.
type refusal struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Among is the digest of the modules that were in the kernel: a missing symbol may come with another module.
	Among string `json:"among,omitempty"`
	// Delivery whose file was refused for its signature. A build that is signed anew keeps its build ID.
	Delivery string `json:"delivery,omitempty"`
	// Against is the name and the build of the live module that it does not fit. Another build of that may take its place.
	Against string `json:"against,omitempty"`
}

// holds tells whether the kernel would give the same answer again.
func (r refusal) holds(f facts) bool {
	return (r.Among == "" || r.Among == f.among) && (r.Delivery == "" || r.Delivery == deliveryID(f.order)) && (r.Against == "" || f.has(r.Against))
}

// has tells whether that build is live, by its name and identity.
func (f facts) has(build string) bool {
	name, id, _ := strings.Cut(build, " ")
	m, live := f.live[name]
	return live && identity(m.BuildID, m.SrcVersion) == id
}

// final are the reasons for which a kernel refuses the same build again until its next boot.
var final = []string{
	v1beta1.ReasonSignatureRejected, v1beta1.ReasonLockedDown, v1beta1.ReasonLoadPin, v1beta1.ReasonVermagicMismatch, v1beta1.ReasonUnknownSymbol, v1beta1.ReasonModulesDisabled,
	v1beta1.ReasonDependencyConflict,
}

// build identifies what a step would load.
func (s planStep) build() string {
	id := s.BuildID
	if id == "" {
		id = s.Content
	}
	if s.way != "" {
		id += " " + s.way
	}
	return s.Name + " " + id
}

// refused finds what the kernel has said of a plan's builds already.
func (f facts) refused() *report {
	for _, s := range f.plan.Steps {
		r, ok := f.journal.Refused[s.build()]
		if !ok || s.Optional || !r.holds(f) {
			continue
		}
		if _, live := f.live[s.Name]; live && s.Name != f.plan.Main {
			continue
		}
		head, log, more := strings.Cut(r.Message, "\n")
		head += " Not tried again before the next boot, or another build or signature."
		if more {
			head += "\n" + log
		}
		return &report{State: v1beta1.AttemptFailed, Reason: r.Reason, Message: head}
	}
	return nil
}

// remember keeps a final refusal of a step, of what is known of it what matters for its reason. It tells whether the journal changed.
func (j *journal) remember(s planStep, r report, known refusal) bool {
	if !slices.Contains(final, r.Reason) {
		return false
	}
	if len(j.Refused) >= maxRefusals || j.Refused == nil {
		j.Refused = map[string]refusal{}
	}
	if r.Reason != v1beta1.ReasonUnknownSymbol && r.Reason != v1beta1.ReasonDependencyConflict {
		known.Among = ""
	}
	if r.Reason != v1beta1.ReasonSignatureRejected && r.Reason != v1beta1.ReasonLockedDown {
		known.Delivery = ""
	}
	known.Reason, known.Message = r.Reason, r.Message
	j.Refused[s.build()] = known
	return true
}

// digestOf identifies a set of modules.
func digestOf(present map[string]host.State) string {
	return hash(slices.Sorted(maps.Keys(present)))
}

// maxSamples bounds how many of the host's modules are looked at for one that tells the kernel's vermagic.
const maxSamples = 8

// hopeless says why the kernel will certainly refuse a plan; nil when it may load.
func hopeless(h host.Host, tree *kmod.Tree, steps []kmod.Step) (*report, error) {
	rules, err := h.Rules()
	if err != nil {
		return nil, err
	}
	magic, err := vermagicOf(h, tree)
	if err != nil {
		return nil, err
	}
	var modules []check.Module
	for _, s := range steps {
		if !s.Optional {
			// What is certain shows in the facts; symbols and signatures are left to the kernel.
			modules = append(modules, check.Module{Name: s.Name, Details: &kmod.Details{Info: s.Info}})
		}
	}
	kernel := check.Kernel{Release: h.Release(), Machine: rules.Machine, Vermagic: magic, ModulesDisabled: rules.ModulesDisabled}
	for _, finding := range check.Check(kernel, modules) {
		if finding.Certain {
			return &report{State: v1beta1.AttemptFailed, Reason: finding.Reason, Message: finding.Message}, nil
		}
	}
	return nil, nil
}

// vermagicOf is the vermagic of a module that the running kernel has accepted, or "" when none is known: one of the host's tree that is live.
func vermagicOf(h host.Host, tree *kmod.Tree) (string, error) {
	if tree == nil {
		return "", nil
	}
	present, err := h.Modules()
	if err != nil {
		return "", err
	}
	left := maxSamples
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if _, ok := tree.Path(name); !ok {
			continue
		}
		if left--; left < 0 {
			break
		}
		live, ok, err := h.Module(name)
		if err != nil {
			return "", err
		}
		info, err := tree.Info(name)
		if err != nil || !ok || info.BuildID == "" || info.BuildID != live.BuildID {
			continue // replaced on disk since, or unreadable: another one will do
		}
		return info.Vermagic, nil
	}
	return "", nil
}
