// SPDX-License-Identifier: Apache-2.0

// Package fit says whether the kernel modules of an image fit a kernel, without loading them: by
// the checks that the agent makes before a load, as far as they need no node.
package fit

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/imagefs"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/check"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// State of a finding.
type State string

// States of findings.
const (
	OK State = "ok"
	// Failed: the kernel will refuse the module, or something that it needs is missing.
	Failed State = "failed"
	// Unchecked: the facts for this check were not given.
	Unchecked State = "unchecked"
)

// Finding is one answer about one module.
type Finding struct {
	Module string `json:"module,omitempty"`
	Check  string `json:"check"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
}

// Wish is what an image is examined for.
type Wish struct {
	// Kernel is the whole version; Machine, the processor in Go's words; empty: unknown.
	Kernel, Machine string
	// Dir is the directory in the image that holds lib/modules, Firmware the one with firmware.
	Dir, Firmware string
	// Modules to load, all of the image if empty, and their order, if given.
	Modules, Loading []string
	// Symbols that the kernel exports, and Host, its own modules; nil where unknown.
	Symbols map[string]kmod.Symbol
	Host    *kmod.Tree
}

// WishOf examines an image under a Module's own settings.
func WishOf(c *v1beta1.ModuleConfig) Wish {
	w := Wish{Kernel: c.KernelVersion, Dir: c.Modprobe.DirName, Firmware: c.Modprobe.FirmwarePath, Loading: c.Modprobe.ModulesLoadingOrder}
	if c.Modprobe.ModuleName != "" {
		w.Modules = []string{c.Modprobe.ModuleName}
	}
	return w
}

var machines = map[string]uint16{"386": 3, "ppc64le": 21, "s390x": 22, "arm": 40, "amd64": 62, "arm64": 183, "riscv64": 243, "loong64": 258}

// Examine looks at an image's root. Nothing is loaded.
func Examine(image fs.FS, w Wish) ([]Finding, error) {
	root := imagefs.New(image)
	dir, below, tree, err := w.open(root)
	if errors.Is(err, fs.ErrNotExist) {
		return []Finding{{Check: "modules", State: Failed, Reason: v1beta1.ReasonImageUnreadable,
			Text: fmt.Sprintf("the image has no /%s; it has %s", dir, kernelsIn(root, path.Dir(dir)))}}, nil
	}
	if err == nil {
		err = w.openFirmware(root)
	}
	if refused, ok := errors.AsType[*imagefs.LinkError](err); ok {
		return []Finding{{Check: "links", State: Failed, Reason: v1beta1.ReasonImageUnreadable, Text: refused.Error()}}, nil
	}
	if errors.Is(err, errNoFirmware) {
		return []Finding{{Check: "firmware", State: Failed, Reason: v1beta1.ReasonImageUnreadable, Text: err.Error()}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the image's modules: %w", err)
	}
	wanted := w.Modules
	if len(wanted) == 0 {
		wanted = tree.Names()
	}
	if len(wanted) == 0 {
		return []Finding{{Check: "modules", State: Failed, Reason: v1beta1.ReasonImageUnreadable, Text: "the image has no module below /" + dir}},
			nil
	}
	var findings []Finding
	done := map[string]bool{}
	for _, module := range wanted {
		more, err := w.module(root, below, tree, kmod.NormalizeName(module), done)
		if err != nil {
			return nil, err
		}
		findings = append(findings, more...)
	}
	return findings, nil
}

// open finds the kernel's modules as a node does.
func (w *Wish) open(root *imagefs.FS) (dir string, below fs.FS, tree *kmod.Tree, err error) {
	if dir, err = w.dir(root); err != nil {
		return dir, nil, nil, err
	}
	if below, err = fs.Sub(root, dir); err != nil {
		return dir, nil, nil, fmt.Errorf("open %s: %w", dir, err)
	}
	tree, err = kmod.NewTree(below)
	return dir, below, tree, err
}

// dir is the kernel's directory: by the version, then without and with a "+".
func (w *Wish) dir(root *imagefs.FS) (string, error) {
	all := path.Join(rooted(w.Dir), "lib/modules")
	bare := kernel.Trim(w.Kernel)
	for _, name := range []string{w.Kernel, bare, bare + "+"} {
		if _, err := root.Stat(path.Join(all, name)); !errors.Is(err, fs.ErrNotExist) {
			return path.Join(all, name), err
		}
	}
	return path.Join(all, w.Kernel), fs.ErrNotExist
}

// rooted is a path of a Module's spec, from an image's root.
func rooted(name string) string { return path.Join(".", path.Clean("/" + name)[1:]) }

// errNoFirmware says that nodes will look for firmware in vain.
var errNoFirmware = errors.New("firmwarePath")

// openFirmware finds what keeps a node from taking the firmware.
func (w *Wish) openFirmware(root *imagefs.FS) error {
	if w.Firmware == "" {
		return nil
	}
	dir := rooted(w.Firmware)
	info, err := root.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return fmt.Errorf("the image has no directory /%s (%w)", dir, errNoFirmware)
	}
	if err != nil {
		return err
	}
	return root.Files(dir, func(string) error { return nil })
}

// module examines one module and what it needs from the image. done were examined before.
func (w *Wish) module(root, below fs.FS, tree *kmod.Tree, module string, done map[string]bool) ([]Finding, error) {
	steps, findings := w.resolve(tree, module)
	var modules []check.Module
	for _, step := range steps {
		if step.From != kmod.Image {
			continue
		}
		details, err := kmod.ReadDetailsFile(below, step.Path)
		if err != nil {
			findings = append(findings, Finding{Module: step.Name, Check: "file", State: Failed, Reason: v1beta1.ReasonImageUnreadable,
				Text: err.Error()})
			continue
		}
		modules = append(modules, check.Module{Name: step.Name, Details: details})
	}
	answers := check.Check(w.facts(), modules)
	for _, m := range modules {
		if done[m.Name] {
			continue
		}
		done[m.Name] = true
		findings = append(findings, w.about(root, m, answers)...)
	}
	return findings, nil
}

// resolve finds what a module needs. Without the kernel's tree, it takes what is missing as given.
func (w *Wish) resolve(tree *kmod.Tree, module string) ([]kmod.Step, []Finding) {
	live := map[string]bool{}
	for {
		want := kmod.Want{Modules: []string{module}, Live: live}
		if len(w.Loading) > 0 && kmod.NormalizeName(w.Loading[0]) == module {
			want.LoadOrder = w.Loading
		}
		steps, err := kmod.Resolve(want, tree, w.Host)
		var missing *kmod.MissingDependencyError
		switch {
		case err == nil:
			f := Finding{Module: module, Check: "dependencies", State: OK, Text: "all are available"}
			if len(live) > 0 {
				f.State, f.Text = Unchecked, fmt.Sprintf("not in the image: %s; give the kernel's own tree as --kernel-tree", sorted(live))
			}
			return steps, []Finding{f}
		case errors.As(err, &missing) && w.Host == nil && !live[missing.Needs]:
			live[missing.Needs] = true
		case errors.As(err, &missing):
			return nil, []Finding{{Module: module, Check: "dependencies", State: Failed, Reason: v1beta1.ReasonMissingDependency, Text: err.Error()}}
		default:
			return nil, []Finding{{Module: module, Check: "file", State: Failed, Reason: v1beta1.ReasonImageUnreadable, Text: err.Error()}}
		}
	}
}

func (w *Wish) facts() check.Kernel {
	k := check.Kernel{Release: w.Kernel, Machine: machines[w.Machine]}
	if w.Host != nil {
		for _, name := range w.Host.Names() {
			if info, err := w.Host.Info(name); err == nil && info.Vermagic != "" {
				k.Vermagic = info.Vermagic
				break
			}
		}
	}
	if w.Symbols != nil {
		k.Symbols = func(name string) (kmod.Symbol, bool) { s, ok := w.Symbols[name]; return s, ok }
	}
	return k
}

func (w *Wish) about(root fs.FS, m check.Module, answers []check.Finding) []Finding {
	info := m.Details.Info
	vermagic := Finding{Module: m.Name, Check: "vermagic", State: OK, Text: fmt.Sprintf("%q", strings.TrimSpace(info.Vermagic))}
	if w.Host == nil {
		vermagic.Text += ": its flags were not compared (--kernel-tree)"
		if info.HasCRCs {
			vermagic.State = Unchecked
		}
		if built := kmod.ParseVermagic(info.Vermagic).Release; info.HasCRCs && built != w.Kernel {
			vermagic.Text += "; it was built for " + built + ", which the kernel allows only if all symbol CRCs are equal (--symvers)"
		}
	}
	symbols := Finding{Module: m.Name, Check: "symbols", State: OK,
		Text: fmt.Sprintf("the kernel exports all %d that it uses", len(m.Details.Imports))}
	if w.Symbols == nil {
		symbols.State, symbols.Text = Unchecked, "give the kernel's Module.symvers or System.map as --symvers"
	}
	trust := signed(m)
	for _, a := range answers {
		if a.Module != m.Name {
			continue
		}
		at := &symbols
		switch a.Reason {
		case v1beta1.ReasonVermagicMismatch:
			at = &vermagic
		case v1beta1.ReasonSignatureRejected:
			at = &trust
		}
		at.State, at.Reason, at.Text = Failed, a.Reason, a.Message
	}
	return append([]Finding{vermagic, symbols, trust}, w.firmwareOf(root, m)...)
}

func signed(m check.Module) Finding {
	f := Finding{Module: m.Name, Check: "signature", State: OK, Text: "none: only kernels that require no signature load it (no Secure " +
		"Boot, no sig_enforce)"}
	if s := m.Details.Signature; s != nil {
		f.Text = signers(*s) + ": only the node knows whether it trusts the signature"
		for _, earlier := range m.Details.Earlier {
			f.Text += "; kernels do not look at the one before, " + signers(earlier)
		}
	}
	return f
}

// signers of a signature, each with the hash that was signed.
func signers(s signature.Signature) string {
	if s.Problem != "" {
		return "one that cannot be read (" + s.Problem + ")"
	}
	var keys []string
	for _, signer := range s.Signers {
		keys = append(keys, fmt.Sprintf("%s (%s)", signer, signer.Hash))
	}
	return "by " + strings.Join(keys, " and ")
}

func (w *Wish) firmwareOf(root fs.FS, m check.Module) []Finding {
	if len(m.Details.Info.Firmware) == 0 {
		return nil
	}
	f := Finding{Module: m.Name, Check: "firmware", State: OK,
		Text: fmt.Sprintf("all %d files are in the image", len(m.Details.Info.Firmware))}
	if w.Firmware == "" {
		f.State, f.Text = Unchecked, "it may request "+strings.Join(m.Details.Info.Firmware, ", ")+"; give --firmware-path if the image has it"
		return []Finding{f}
	}
	var lacking []string
	for _, name := range m.Details.Info.Firmware {
		file := path.Join(rooted(w.Firmware), name)
		if !slices.ContainsFunc([]string{"", ".xz", ".zst"},
			func(ending string) bool { _, err := fs.Stat(root, file+ending); return err == nil }) {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		f.State, f.Text = Unchecked, "not in the image: "+strings.Join(lacking, ", ")+"; the node must have it"
	}
	return []Finding{f}
}

func kernelsIn(root fs.FS, dir string) string {
	entries, err := fs.ReadDir(root, dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || len(names) == 0 {
		return "nothing below /" + dir + " (--dir-name)"
	}
	return "modules for " + strings.Join(names, ", ")
}

func sorted(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

// Next is what to do about a finding.
func (f Finding) Next() string { return reasons.Next(f.Reason) }
