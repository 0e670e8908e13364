// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// ModprobeRunning is false: a call ends before it returns.
func (*Host) ModprobeRunning() bool { return false }

// Modprobe plays kmod's modprobe: it loads the modules that the command line names, and what they
// need, or removes them, and what nobody uses any more then. It knows no configuration. Its calls
// of the kernel are in the call journal like all others, and fail as scripted.
func (h *Host) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	call := modprobe.Parse(r.Args)
	image, err := kmod.NewTree(r.Image)
	if err != nil {
		return fmt.Errorf("modprobe: %w", err)
	}
	hostFS, err := h.Tree()
	if err != nil {
		return err
	}
	hostTree, err := kmod.NewHostTree(hostFS)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("modprobe: %w", err)
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: call.Modules, LoadOrder: r.LoadOrder}, image, hostTree)
	if err != nil {
		return fmt.Errorf("modprobe: %w", err)
	}
	if call.Remove {
		return h.modprobeRemove(ctx, r, call, steps)
	}
	live := h.Live()
	for _, s := range steps {
		from := r.Image
		if s.From == kmod.Host {
			from = hostFS
		}
		_, there := live[s.Name]
		if there {
			continue
		}
		var params []string
		if slices.Contains(call.Modules, s.Name) {
			params = call.Params
		}
		if err := h.modprobeLoad(ctx, r, from, s, params); err != nil && !s.Optional {
			return err
		}
	}
	return nil
}

func (h *Host) modprobeLoad(ctx context.Context, r host.ModprobeRequest, from fs.FS, s kmod.Step, params []string) error {
	file, err := from.Open(s.Path)
	if err != nil {
		return fmt.Errorf("modprobe: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	return h.Load(ctx, host.LoadRequest{Name: s.Name, File: file, Params: params, For: r.For})
}

// modprobeRemove removes what is named, and then, last loaded first, what it needed and nobody
// uses.
func (h *Host) modprobeRemove(ctx context.Context, r host.ModprobeRequest, call modprobe.Call, steps []kmod.Step) error {
	for _, name := range call.Modules {
		if _, there := h.Live()[name]; !there {
			continue
		}
		if err := h.Unload(ctx, host.UnloadRequest{Name: name, For: r.For}); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(steps) {
		m, there, err := h.Module(s.Name)
		if err != nil || !there || m.RefCount > 0 {
			continue
		}
		if err := h.Unload(ctx, host.UnloadRequest{Name: s.Name, For: r.For}); err != nil {
			continue // somebody uses it: modprobe says nothing about those
		}
	}
	return nil
}
