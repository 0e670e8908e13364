// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
)

var (
	errKilled = errors.New("killed")
	errPanic  = errors.New("the node went down in the call")
)

// Load implements host.Host.
func (h *Host) Load(ctx context.Context, r host.LoadRequest) error {
	content, err := io.ReadAll(r.File)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.Name, err)
	}
	call := Call{Call: "finit_module", Module: r.Name, Params: r.Params, For: r.For}
	info, err := kmod.Read(content)
	if err != nil {
		return h.end(call, &host.CallError{Errno: "ENOEXEC", Log: []string{err.Error()}})
	}
	call.Module, call.BuildID = info.Name, info.BuildID
	signature, err := signatureOf(info, content)
	if err != nil {
		return h.end(call, &host.CallError{Errno: "ENOEXEC", Log: []string{err.Error()}})
	}
	m, err := h.admit(info, signature, r.Params)
	if err != nil {
		return h.end(call, err)
	}
	return h.run(ctx, call, m, h.initialised)
}

// Unload implements host.Host.
func (h *Host) Unload(ctx context.Context, r host.UnloadRequest) error {
	call := Call{Call: "delete_module", Module: kmod.NormalizeName(r.Name), For: r.For}
	m, err := h.dismiss(call.Module)
	if m != nil {
		call.BuildID = m.info.BuildID
	}
	if err != nil {
		return h.end(call, err)
	}
	return h.run(ctx, call, m, h.exited)
}

// run is the module's own part of a call: its init or exit function, as it is scripted.
func (h *Host) run(ctx context.Context, call Call, m *module, returned func(*module, string) error) error {
	f := h.fault(call.Call, m.info.Name)
	switch {
	case f == nil:
		return h.end(call, returned(m, ""))
	case f.Panic:
		return h.panics(call, m, f.Dump)
	case f.Oops:
		h.oops()
		return h.end(call, &host.DiedError{
			Call: call.Call, Module: m.info.Name, Err: errKilled, Log: "Oops: 0002 [#1] PREEMPT SMP\nRIP: 0010:" + m.info.Name +
				"_init+0x12/0x34 [" + m.info.Name + "]\n",
		})
	}
	if err := h.wait(ctx, f, m); err != nil {
		return h.end(call, err)
	}
	err := returned(m, f.Errno)
	var refused *host.CallError
	if errors.As(err, &refused) {
		refused.Log = f.Log
	}
	return h.end(call, err)
}

// wait lets a slow call take its time. One that exceeds the deadline is over for the caller, as a
// child process that is left behind: the module comes, or goes, without anybody's knowledge.
func (h *Host) wait(ctx context.Context, f *Fault, m *module) error {
	if f.Delay <= 0 {
		return nil
	}
	begin := h.o.Clock.Now()
	timer := h.o.Clock.NewTimer(min(f.Delay, h.o.Deadline))
	defer timer.Stop()
	var left error
	select {
	case <-timer.C():
		if f.Delay <= h.o.Deadline {
			return nil
		}
		left = host.ErrTimeout
	case <-ctx.Done():
		left = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.modules[m.info.Name] == m {
		m.returns, m.errno = begin.Add(f.Delay), f.Errno
		h.pending++
	}
	return fmt.Errorf("call for %s: %w", m.info.Name, left)
}

// catchUp ends the calls that were left behind and have returned since. The caller has the lock.
func (h *Host) catchUp() {
	if h.pending == 0 {
		return
	}
	now := h.o.Clock.Now()
	for name, m := range h.modules {
		if m.returns.IsZero() || now.Before(m.returns) {
			continue
		}
		call := Call{Call: "returned", Module: name, Time: m.returns, BootID: h.boot, Result: m.errno}
		switch {
		case m.state == host.StateComing && m.errno == "", m.state == host.StateGoing && m.errno != "":
			m.state = host.StateLive
			call.BuildID = m.info.BuildID
		default:
			delete(h.modules, name)
		}
		m.returns = time.Time{}
		h.pending--
		h.calls = append(h.calls, call)
	}
}

// oops kills the task that calls. What it was at stays as it is.
func (h *Host) oops() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taint['D'] = true
}

// panics takes the node down, and the caller with it.
func (h *Host) panics(call Call, m *module, dump bool) error {
	if dump {
		h.Dump("Kernel panic - not syncing: Fatal exception\nCall Trace:\n " + m.info.Name + "_init+0x12/0x34 [" + m.info.Name + "]\n")
	}
	err := h.end(call, fmt.Errorf("%s %s: %w", call.Call, m.info.Name, errPanic))
	h.Reboot("")
	h.o.Died()
	return err
}
