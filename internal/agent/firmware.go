// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/manifest"
)

// stageFirmware puts a plan's firmware where the kernel finds it. A report says why that failed.
func (p *pass) stageFirmware(f facts) *report {
	if f.plan.Firmware == nil {
		return nil
	}
	err := p.o.Firmware.Add(f.key.String(), f.plan.Firmware)
	var conflict *firmware.Conflict
	var refused *manifest.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &conflict):
		return &report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonFirmwareConflict, Message: fmt.Sprintf("Firmware is not staged: %v.", conflict)}
	case errors.As(err, &refused):
		return &report{State: v1beta1.AttemptFailed, Reason: refused.Reason, Message: refused.Message}
	}
	return &report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed, Message: fmt.Sprintf("Firmware cannot be staged: %v.", err)}
}

// releaseFirmware ends the need of what is loaded for an order, or was about to be.
func (p *pass) releaseFirmware(k key) error {
	if l := p.journal.Loaded[k]; p.o.Firmware == nil || l == nil || l.Config.Modprobe.FirmwarePath == "" {
		return nil
	}
	if err := p.o.Firmware.Remove(k.String()); err != nil {
		return fmt.Errorf("firmware: %w", err)
	}
	return nil
}

// tidyFirmware removes, once after the start, what was staged for orders that are gone. What is loaded keeps its firmware, also without an order:
// the kernel may ask for it again.
func (p *pass) tidyFirmware() error {
	if p.o.Firmware == nil || p.tidied {
		return nil
	}
	var keep []string
	for _, k := range p.keys() {
		if o := p.orders[k]; p.journal.Loaded[k] != nil || o.State != v1beta1.NodeModuleAbsent {
			keep = append(keep, k.String())
		}
	}
	if err := p.o.Firmware.Retain(keep); err != nil {
		return fmt.Errorf("firmware: %w", err)
	}
	p.tidied = true
	return nil
}
