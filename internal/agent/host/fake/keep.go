// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// kept is a running kernel, for a while in which no process plays it.
type kept struct {
	Release  string                `json:"release"`
	Boot     string                `json:"boot"`
	Boots    int                   `json:"boots"`
	Modules  map[string]keptModule `json:"modules"`
	Disabled bool                  `json:"disabled"`
	Taint    string                `json:"taint"`
	Unplug   map[string]bool       `json:"unplug"`
	Files    map[string]string     `json:"files"`
	Calls    []Call                `json:"calls"`
}

type keptModule struct {
	Info    *kmod.Info        `json:"info"`
	State   host.State        `json:"state"`
	Users   []host.User       `json:"users"`
	Params  map[string]string `json:"params"`
	Passed  map[string]string `json:"passed"`
	Depends []string          `json:"depends"`
	Takes   []string          `json:"takes"`
	Signed  bool              `json:"signed"`
}

// Keep describes the running kernel and its call journal as JSON, so that Resume goes on with it in
// another process, in the same boot. What only this process knows cannot be kept, and is an error:
// scripted faults, calls that were left behind, dumps, and other Security than the default.
func (h *Host) Keep() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUp()
	secured := func(s Security) bool { return s.Enforced || s.LockedDown || len(s.Keyring) > 0 }
	if len(h.faults) > 0 || h.pending > 0 || len(h.dumps) > 0 || secured(h.security) || secured(h.o.Security) {
		return nil, errors.New("keep a fake kernel: it has faults, calls that were left behind, dumps, or demands signatures")
	}
	k := kept{
		Release: h.o.Release, Boot: h.boot, Boots: h.boots, Modules: map[string]keptModule{}, Disabled: h.disabled, Taint: letters(h.taint),
		Unplug: h.unplug, Files: h.files, Calls: h.calls,
	}
	for name, m := range h.modules {
		k.Modules[name] = keptModule{m.info, m.state, m.users, m.params, m.passed, m.depends, m.takes, m.signed}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("keep a fake kernel: %w", err)
	}
	return data, nil
}

// Resume goes on with what Keep has described. It is for a Host that is new.
func (h *Host) Resume(data []byte) error {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("resume a fake kernel: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o.Release, h.boot, h.boots, h.disabled, h.calls = k.Release, k.Boot, k.Boots, k.Disabled, slices.Clone(k.Calls)
	maps.Copy(h.unplug, k.Unplug)
	maps.Copy(h.files, k.Files)
	for _, l := range []byte(k.Taint) {
		h.taint[l] = true
	}
	for name, m := range k.Modules {
		h.modules[name] = &module{
			info: m.Info, state: m.State, users: m.Users, params: m.Params, passed: m.Passed, depends: m.Depends, takes: m.Takes, signed: m.Signed,
		}
	}
	return nil
}
