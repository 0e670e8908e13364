// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Calls is a copy of the call journal, oldest first. It spans boots.
func (h *Host) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// TakeCalls returns the journal and begins a new one, for whoever keeps it elsewhere: that of a
// long run grows.
func (h *Host) TakeCalls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.calls
	h.calls = nil
	return taken
}

// Passed are the parameters that a module was loaded with, also those that it does not know.
func (h *Host) Passed(module string) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.modules[module]; m != nil {
		return maps.Clone(m.passed)
	}
	return nil
}

// Live are the build IDs of all live modules by name.
func (h *Host) Live() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	live := map[string]string{}
	for name, m := range h.modules {
		if m.state == host.StateLive {
			live[name] = m.info.BuildID
		}
	}
	return live
}

// Boots counts the boots, the first being 1.
func (h *Host) Boots() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boots + 1
}

// Reboot empties the kernel and gives a new boot ID. A release that is not empty is the new
// kernel's.
func (h *Host) Reboot(release string) {
	h.mu.Lock()
	if release != "" {
		h.o.Release = release
	}
	h.boots++
	h.startKernel()
	h.mu.Unlock()
	_ = h.end(Call{Call: "reboot"}, nil)
}

// Hold makes somebody use a module whom nobody can see: it cannot be unloaded before as many calls
// of Unhold.
func (h *Host) Hold(name string) error { return h.HoldBy(name, host.User{}) }

// HoldBy is Hold by a user whom Users names.
func (h *Host) HoldBy(name string, user host.User) error {
	return h.use(name, func(m *module) { m.users = append(m.users, user) })
}

// TakeReference makes a module use another without its symbols until it leaves, as a driver does
// that is bound through a bus. The kernel counts it and names it nowhere.
func (h *Host) TakeReference(by, name string) error {
	return h.use(by, func(m *module) { m.takes = append(m.takes, kmod.NormalizeName(name)) })
}

// Unhold ends the latest use of a module.
func (h *Host) Unhold(name string) error {
	return h.use(name, func(m *module) { m.users = m.users[:max(len(m.users)-1, 0)] })
}

func (h *Host) use(name string, change func(*module)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.modules[kmod.NormalizeName(name)]
	if !ok {
		return fmt.Errorf("module %s: %w", name, fs.ErrNotExist)
	}
	change(m)
	return nil
}

// HurryUsers has the next searches for users end before they found a process.
func (h *Host) HurryUsers(times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurried = times
}

// Users implements host.Host.
func (h *Host) Users(name string) ([]host.User, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.modules[kmod.NormalizeName(name)]
	if !ok {
		return nil, nil
	}
	var users []host.User
	for _, n := range h.holders(m.info.Name) {
		users = append(users, host.User{Kind: host.UserModule, Name: n})
	}
	if h.hurried > 0 {
		h.hurried--
		return host.SortUsers(users), fmt.Errorf("some processes were not looked at: %w", host.ErrTimeout)
	}
	for _, u := range m.users {
		if u != (host.User{}) {
			users = append(users, u)
		}
	}
	return host.SortUsers(users), nil
}

// Dump leaves a kernel's log of a crash in persistent storage. It outlives boots.
func (h *Host) Dump(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dumps = append(h.dumps, host.Dump{Text: text, Time: h.o.Clock.Now()})
}

// DisableModules sets kernel.modules_disabled, which only a reboot takes back.
func (h *Host) DisableModules() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disabled = true
}

// Insmod is a person who loads a module file by hand.
func (h *Host) Insmod(file []byte, params ...string) error {
	info, err := kmod.Read(file)
	if err != nil {
		return fmt.Errorf("insmod: %w", err)
	}
	signature, err := signatureOf(info, file)
	if err != nil {
		return fmt.Errorf("insmod: %w", err)
	}
	m, err := h.admit(info, signature, params)
	if err == nil {
		err = h.initialised(m, "")
	}
	return h.end(Call{Call: "insmod", Module: info.Name, BuildID: info.BuildID, Params: params}, err)
}

// Rmmod is a person who unloads a module by hand.
func (h *Host) Rmmod(name string) error {
	m, err := h.dismiss(kmod.NormalizeName(name))
	call := Call{Call: "rmmod", Module: kmod.NormalizeName(name)}
	if err == nil {
		call.BuildID = m.info.BuildID
		err = h.exited(m, "")
	}
	return h.end(call, err)
}

// Script makes calls ("finit_module", "delete_module") for a module (empty: any) go wrong or
// slowly. Faults apply in the order scripted.
func (h *Host) Script(call, name string, f Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := call + " " + kmod.NormalizeName(name)
	h.faults[k] = append(h.faults[k], &f)
}

// Unplug takes away the device that a module's init looks for, so that it returns ENODEV. A reboot
// does not bring it back.
func (h *Host) Unplug(module string) { h.plug(module, true) }

// Plug puts it back.
func (h *Host) Plug(module string) { h.plug(module, false) }

func (h *Host) plug(module string, away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unplug[kmod.NormalizeName(module)] = away
}

// Mend forgets all scripted faults.
func (h *Host) Mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.faults)
}

// MendModule forgets the faults that were scripted for one module.
func (h *Host) MendModule(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.faults {
		if strings.HasSuffix(k, " "+kmod.NormalizeName(name)) {
			delete(h.faults, k)
		}
	}
}

func (h *Host) fault(call, name string) *Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range []string{call + " " + name, call + " "} {
		for _, f := range h.faults[k] {
			if f.Times == 0 || f.hits < f.Times {
				f.hits++
				return f
			}
		}
	}
	return nil
}

// end writes a call down, tells the watchers and completes the error.
func (h *Host) end(c Call, err error) error {
	var refused *host.CallError
	var died *host.DiedError
	switch {
	case err == nil:
	case errors.As(err, &refused):
		refused.Call, refused.Module = c.Call, c.Module
		c.Result = refused.Errno
	case errors.Is(err, host.ErrTimeout):
		c.Result = "timeout"
	case errors.As(err, &died):
		c.Result = "oops"
	case errors.Is(err, errPanic):
		c.Result = "panic"
	default:
		c.Result = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Time, c.BootID = h.o.Clock.Now(), h.boot
	h.calls = append(h.calls, c)
	if err == nil {
		for w := range h.watchers {
			select {
			case w <- struct{}{}:
			default:
			}
		}
	}
	return err
}

// emptyTree is a directory that does not exist.
type emptyTree struct{}

// Open finds nothing.
func (emptyTree) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
