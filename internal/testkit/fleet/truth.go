// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// NodeTruth is what a hollow node's fake kernel knows, read from it and not from the API.
type NodeTruth struct {
	Name   string         `json:"name"`
	Kernel string         `json:"kernel"`
	BootID string         `json:"bootID"`
	Loaded []LoadedModule `json:"loaded"`
	// Loads and Unloads count the calls that the kernel granted since it was started.
	Loads   int `json:"loads"`
	Unloads int `json:"unloads"`
	// ByHand counts what was done to the kernel past the agent.
	ByHand int `json:"byHand"`
}

// LoadedModule is one module of a fake kernel.
type LoadedModule struct {
	Name    string            `json:"name"`
	BuildID string            `json:"buildID"`
	Params  map[string]string `json:"params"`
}

// Has says whether the kernel holds the module.
func (n NodeTruth) Has(module string) bool {
	for _, m := range n.Loaded {
		if m.Name == module {
			return true
		}
	}
	return false
}

// Truth asks the fake kernels.
func (f *Fleet) Truth(ctx context.Context) ([]NodeTruth, error) {
	var nodes []NodeTruth
	err := f.ask(ctx, "/nodes", &nodes)
	return nodes, err
}

// Journal is every call that every fake kernel got, oldest first, by node. It spans boots.
func (f *Fleet) Journal(ctx context.Context) (map[string][]fake.Call, error) {
	var journal map[string][]fake.Call
	err := f.ask(ctx, "/journal", &journal)
	return journal, err
}

// TakeJournal is Journal since the last call of it.
func (f *Fleet) TakeJournal(ctx context.Context) (map[string][]fake.Call, error) {
	var journal map[string][]fake.Call
	err := f.ask(ctx, "/journal?take=true", &journal)
	return journal, err
}

// HollowVitals is what the process of the hollow nodes takes, all agents in it.
type HollowVitals struct {
	Goroutines  int     `json:"goroutines"`
	Descriptors int     `json:"descriptors"`
	HeapBytes   float64 `json:"heapBytes"`
	// AgentKills and RefusedPulls count since its start.
	AgentKills   int `json:"agentKills"`
	RefusedPulls int `json:"refusedPulls"`
}

// HollowVitals asks for them.
func (f *Fleet) HollowVitals(ctx context.Context) (v HollowVitals, err error) {
	err = f.ask(ctx, "/vitals", &v)
	return v, err
}

// KernelChanges is told when any fake kernel changed, until ctx ends.
func (f *Fleet) KernelChanges(ctx context.Context, told func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.debug+"/changes", nil)
	if err != nil {
		return fmt.Errorf("watch the fake kernels: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("watch the fake kernels: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		told()
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch the fake kernels: the stream ended: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

func (f *Fleet) ask(ctx context.Context, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.debug+path, nil)
	if err != nil {
		return fmt.Errorf("ask the fake kernels: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the fake kernels: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("read what the fake kernels say: %w", err)
	}
	return nil
}

// Debug calls a verb of the hollow nodes' debug address, for example "/reboot?node=hollow-0".
func (f *Fleet) Debug(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.debug+path, nil)
	if err != nil {
		return fmt.Errorf("ask the hollow nodes for %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the hollow nodes for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("hollow nodes answer %s to %s: %s", resp.Status, path, body)
	}
	return nil
}
