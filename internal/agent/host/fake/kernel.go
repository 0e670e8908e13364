// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// admit is finit_module up to the call of init, in the kernel's order (kernel/module/main.c):
// signature, version magic, duplicates, symbols (here: the modules that have them). What it returns
// is in the kernel, coming.
func (h *Host) admit(info *kmod.Info, by *signature.Signature, params []string) (*module, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	if h.disabled {
		return nil, refused(info.Name, "EPERM", "kernel.modules_disabled is 1")
	}
	signed, err := h.verify(by)
	if err != nil {
		return nil, err
	}
	if magic := kmod.ParseVermagic(info.Vermagic); !info.HasCRCs &&
		strings.TrimSuffix(magic.Release, "+") != strings.TrimSuffix(h.o.Release, "+") {
		return nil, refused(info.Name, "ENOEXEC", fmt.Sprintf("version magic '%s' should be '%s'", info.Vermagic, h.o.Release))
	}
	m := &module{info: info, state: host.StateComing, params: map[string]string{}, passed: map[string]string{}, signed: true}
	h.addTaint(m) // an out-of-tree or proprietary one taints even if it is refused now
	if err := h.unique(info.Name); err != nil {
		return nil, err
	}
	m.signed = signed
	h.addTaint(m)
	if m.depends, err = h.link(info); err != nil {
		return nil, err
	}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		m.passed[name] = value
		if !slices.ContainsFunc(info.Params, func(known kmod.Param) bool { return known.Name == name }) {
			// The kernel only notes an unknown parameter and goes on.
			continue
		}
		m.params[name] = value
	}
	h.modules[info.Name] = m
	return m, nil
}

// unique: one module of a name. A second load of one that is still coming waits for that, which
// here is for ever.
func (h *Host) unique(name string) error {
	old, ok := h.modules[name]
	switch {
	case !ok:
		return nil
	case old.state == host.StateComing:
		return fmt.Errorf("load %s: its first load has not returned: %w", name, host.ErrTimeout)
	case old.state == host.StateGoing:
		return &host.CallError{Errno: "EBUSY"}
	}
	return &host.CallError{Errno: "EEXIST"}
}

// link finds the modules whose symbols are used.
func (h *Host) link(info *kmod.Info) (depends []string, err error) {
	for _, d := range info.Depends {
		if h.builtIn[d] {
			continue
		}
		m := h.modules[d]
		if m != nil && m.state == host.StateComing {
			return nil, refused(info.Name, "EBUSY", "gave up waiting for init of module "+d+".")
		}
		if m == nil || m.state != host.StateLive {
			return nil, refused(info.Name, "ENOENT", "Unknown symbol of "+d+" (err -2)")
		}
		depends = append(depends, d)
	}
	return depends, nil
}

// initialised ends a load: init has returned.
func (h *Host) initialised(m *module, errno string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.modules[m.info.Name] != m {
		return nil // of an earlier boot
	}
	if errno == "" && h.unplug[m.info.Name] {
		errno = "ENODEV"
	}
	if errno != "" {
		delete(h.modules, m.info.Name)
		return &host.CallError{Errno: errno}
	}
	m.state = host.StateLive
	return nil
}

// dismiss is delete_module up to the call of exit, with O_NONBLOCK. What it returns is in the
// kernel, going.
func (h *Host) dismiss(name string) (*module, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	m, ok := h.modules[name]
	switch {
	case h.disabled:
		return nil, &host.CallError{Errno: "EPERM"}
	case !ok:
		return nil, &host.CallError{Errno: "ENOENT"}
	case len(h.holders(name)) > 0:
		return m, &host.CallError{Errno: "EAGAIN"}
	case m.state != host.StateLive, slices.Contains(h.o.Permanent, name):
		return m, &host.CallError{Errno: "EBUSY"}
	case len(m.users)+h.taken(name) > 0:
		return m, &host.CallError{Errno: "EAGAIN"}
	}
	m.state = host.StateGoing
	return m, nil
}

// exited ends an unload: exit has returned, which cannot fail; an errno stands for a refusal before
// it.
func (h *Host) exited(m *module, errno string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.modules[m.info.Name] != m {
		return nil // of an earlier boot
	}
	if errno != "" {
		m.state = host.StateLive
		return &host.CallError{Errno: errno}
	}
	delete(h.modules, m.info.Name)
	return nil
}

func (h *Host) holders(name string) []string {
	var holders []string
	for other, m := range h.modules {
		if slices.Contains(m.depends, name) {
			holders = append(holders, other)
		}
	}
	slices.Sort(holders)
	return holders
}

// taken counts the references of modules that use this one without its symbols.
func (h *Host) taken(name string) int {
	var n int
	for _, m := range h.modules {
		if slices.Contains(m.takes, name) {
			n++
		}
	}
	return n
}

func refused(module, errno, line string) error {
	return &host.CallError{Errno: errno, Log: []string{module + ": " + line}}
}
