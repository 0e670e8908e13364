// SPDX-License-Identifier: Apache-2.0

// Package check predicts, from facts alone, what the kernel will say to modules that are about to
// be loaded. It touches no host and loads nothing.
//
// A wrong "hopeless" would keep a driver from a healthy node for ever, so answers are of two kinds.
// Certain ones follow from rules that every kernel has. The others rest on facts that a node does
// not show in full (which symbols are exported, their CRCs): they explain a refusal.
package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Kernel is what is known of the running kernel. What is left out is unknown and is not compared.
type Kernel struct {
	// Release is what `uname -r` prints.
	Release string
	// Machine is its ELF machine (EM_X86_64 is 62, EM_AARCH64 183).
	Machine uint16
	// Vermagic is that of a module built with the running kernel, best one that is live: a package
	// upgrade can replace the files below lib/modules/<Release> under a kernel that keeps running.
	Vermagic string
	// ModulesDisabled: kernel.modules_disabled is 1.
	ModulesDisabled bool
	// Symbols finds a symbol of the kernel or of a live module, with its CRC if known. Nil: unknown.
	Symbols func(name string) (symbol kmod.Symbol, found bool)
}

// Module is one module to load.
type Module struct {
	// Name of the module, normalised.
	Name string
	// Details of its file; not nil.
	Details *kmod.Details
}

// Finding is one thing that speaks against loading.
type Finding struct {
	// Module that it is about.
	Module string
	// Reason is one of the API's closed set.
	Reason string
	// Message says what was compared, both values, and the next step.
	Message string
	// Certain: the kernel will refuse; trying is pointless. Otherwise it may load.
	Certain bool
}

// Check returns what speaks against loading modules that are not live yet, in load order. What an
// earlier module exports counts for later ones as if the kernel had it. No finding is no promise.
//
// kmod.Resolve finds dependencies that exist nowhere. modprobe --force leaves nothing to check.
func Check(k Kernel, modules []Module) []Finding {
	if len(modules) == 0 {
		return nil
	}
	if k.ModulesDisabled {
		return []Finding{{
			Module: modules[0].Name, Reason: v1beta1.ReasonModulesDisabled, Certain: true,
			Message: fmt.Sprintf("Module %s cannot be loaded: kernel.modules_disabled is 1 and would have to be 0, which only a reboot can bring; "+
				"remove the setting from the node's sysctl configuration and reboot the node.", modules[0].Name),
		}}
	}
	c := checker{Kernel: k, exports: map[string]export{}}
	var findings []Finding
	for at, m := range modules {
		c.later = modules[at+1:]
		findings = append(findings, c.module(m)...)
		for _, s := range m.Details.Exports {
			c.exports[s.Name] = export{s, m.Name}
		}
	}
	return findings
}

type checker struct {
	Kernel
	exports map[string]export // of the modules before the one that is checked
	later   []Module          // those after it
}

// export is a symbol and the module that exports it.
type export struct {
	kmod.Symbol
	by string
}

// module checks one module. After a certain finding the others would only be consequences of it.
func (c *checker) module(m Module) []Finding {
	var findings []Finding
	for _, check := range []func(Module) *Finding{c.machine, c.vermagic, c.versions, c.signature, c.missing, c.crcs} {
		f := check(m)
		if f == nil {
			continue
		}
		f.Module = m.Name
		findings = append(findings, *f)
		if f.Certain {
			break
		}
	}
	return findings
}

// machines are the names of `uname -m`.
var machines = map[uint16]string{
	3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 258: "loongarch64",
}

func machineName(machine uint16) string { return cmp.Or(machines[machine], "unknown") }

func (c *checker) machine(m Module) *Finding {
	theirs := m.Details.Info.Machine
	if c.Machine == 0 || theirs == c.Machine {
		return nil
	}
	return &Finding{
		Reason: v1beta1.ReasonVermagicMismatch, Certain: true,
		Message: fmt.Sprintf("Module %s was built for the architecture %s (ELF machine %d), and the node is %s (%d); "+
			"map this node's kernel to an image built for its architecture.", m.Name, machineName(theirs), theirs, machineName(c.Machine),
			c.Machine),
	}
}

// modversions tells whether the running kernel compares symbol CRCs.
func (c *checker) modversions() bool {
	return slices.Contains(kmod.ParseVermagic(c.Vermagic).Flags, "modversions")
}

// signature finds a damaged signature. Kernels that know signatures refuse one even when they ask
// for none. Which keys a kernel trusts, a node does not show in full.
func (c *checker) signature(m Module) *Finding {
	s := m.Details.Signature
	if s == nil || s.Problem == "" {
		return nil
	}
	return &Finding{
		Reason: v1beta1.ReasonSignatureRejected,
		Message: fmt.Sprintf("Module %s ends in a signature that cannot be read (%s), and a kernel with CONFIG_MODULE_SIG refuses it; "+
			"sign the file again, and do not strip it afterwards.", m.Name, s.Problem),
	}
}
