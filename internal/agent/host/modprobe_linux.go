// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// HasModprobe tells whether there is a kmod program to run as modprobe.
func (r *Real) HasModprobe() bool {
	_, err := exec.LookPath(r.modprobe.Stage.Kmod)
	return err == nil
}

// ModprobeRunning tells whether a modprobe that was left behind is still running.
func (r *Real) ModprobeRunning() bool { return r.modprobe.Running() }

// Modprobe lays out the image's tree and runs kmod's modprobe on it, with the deadline of kernel
// calls. Its errors are those of Load and Unload, as far as the program tells the kernel's answer.
func (r *Real) Modprobe(_ context.Context, req ModprobeRequest) error {
	name := cmp.Or(strings.Join(req.Modules, " "), "modprobe")
	before := r.logEnd()
	err := r.modprobe.Run(req.Args, modprobe.Content{Dir: req.Dir, Image: req.Image, Modules: req.Modules, LoadOrder: req.LoadOrder})
	var failed *modprobe.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kcall.ErrLeftBehind):
		return fmt.Errorf("modprobe %s: %w", name, ErrTimeout)
	case !errors.As(err, &failed):
		return err
	case failed.Killed:
		return &DiedError{Call: "modprobe", Module: name, Log: newText(before, r.log()), Err: err}
	case failed.Errno == "":
		return err
	}
	return r.refusal("modprobe", kmod.NormalizeName(cmp.Or(failed.Module, name)), failed.Errno, before)
}
