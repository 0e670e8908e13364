// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// journalLength is how many calls of each node's journal are shown.
const journalLength = 20

// truth is what one fake kernel knows.
type truth struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	BootID string `json:"bootID"`
	Boots  int    `json:"boots"`
	// Vanished nodes do not run.
	Vanished bool     `json:"vanished"`
	Loaded   []loaded `json:"loaded"`
	// Loads and Unloads count the calls that the kernel granted, in all boots, since the journal was
	// last taken; Refused those that it did not.
	Loads   int `json:"loads"`
	Unloads int `json:"unloads"`
	Refused int `json:"refused"`
	// ByHand counts what was done to the kernel past the agent.
	ByHand int `json:"byHand"`
	// Journal has the last calls.
	Journal []fake.Call `json:"journal"`
}

type loaded struct {
	Name    string            `json:"name"`
	BuildID string            `json:"buildID"`
	Params  map[string]string `json:"params"`
}

func (n *node) truth() (truth, error) {
	boot, err := n.kernel.BootID()
	if err != nil {
		return truth{}, fmt.Errorf("node %s: %w", n.name, err)
	}
	t := truth{Name: n.name, Kernel: n.kernel.Release(), BootID: boot, Boots: n.kernel.Boots(), Vanished: n.vanished(), Loaded: []loaded{}}
	calls := n.kernel.Calls()
	for _, c := range calls {
		t.count(c)
	}
	t.Journal = calls[max(len(calls)-journalLength, 0):]
	for name, id := range n.kernel.Live() {
		t.Loaded = append(t.Loaded, loaded{Name: name, BuildID: id, Params: n.kernel.Passed(name)})
	}
	slices.SortFunc(t.Loaded, func(a, b loaded) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
}

func (t *truth) count(c fake.Call) {
	switch {
	case c.Call == "insmod" || c.Call == "rmmod":
		t.ByHand++
	case c.Result != "":
		t.Refused++
	case c.Call == "finit_module":
		t.Loads++
	case c.Call == "delete_module":
		t.Unloads++
	}
}

// serve answers on the debug address until ctx ends. It is for loopback: there is no
// authentication.
func (f *fleet) serve(ctx context.Context) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", f.o.DebugAddress)
	if err != nil {
		return fmt.Errorf("serve the truth: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /nodes", f.showNodes)
	mux.HandleFunc("GET /journal", f.showJournals)
	mux.HandleFunc("GET /changes", f.streamChanges)
	mux.HandleFunc("GET /vitals", f.showVitals)
	mux.HandleFunc("POST /images", f.serveImages)
	mux.HandleFunc("POST /recipe", f.cook)
	f.verbs(ctx, mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // it ends with the process
	defer stop()
	klog.FromContext(ctx).Info("Serving what the fake kernels hold", "address", l.Addr().String())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the truth: %w", err)
	}
	return nil
}

// verbs are what can happen to a node.
func (f *fleet) verbs(ctx context.Context, mux *http.ServeMux) {
	f.verb(ctx, mux, "reboot", func(n *node, r *http.Request) error { return n.reboot(ctx, r.FormValue("kernel")) })
	f.verb(ctx, mux, "vanish", func(n *node, _ *http.Request) error { n.vanish(); return nil })
	f.verb(ctx, mux, "return", func(n *node, _ *http.Request) error { return f.comeBack(ctx, n) })
	f.verb(ctx, mux, "rmmod", func(n *node, r *http.Request) error { return n.kernel.Rmmod(r.FormValue("module")) })
	f.verb(ctx, mux, "hold", func(n *node, r *http.Request) error { return n.kernel.Hold(r.FormValue("module")) })
	f.verb(ctx, mux, "unhold", func(n *node, r *http.Request) error { return n.kernel.Unhold(r.FormValue("module")) })
	f.verb(ctx, mux, "fault", func(n *node, r *http.Request) error { return n.fault(r.FormValue("fault"), r.Form) })
	f.verb(ctx, mux, "mend", func(n *node, r *http.Request) error { n.mend(r.FormValue("module")); return nil })
	f.verb(ctx, mux, "secure", func(n *node, r *http.Request) error { return n.secure(ctx, r.Form) })
	f.verb(ctx, mux, "disable-modules", func(n *node, _ *http.Request) error { n.kernel.DisableModules(); return nil })
	f.verb(ctx, mux, "insmod", func(n *node, r *http.Request) error { return f.insmod(n, r.FormValue("module"), r.FormValue("image")) })
	f.verb(ctx, mux, "agent", func(n *node, _ *http.Request) error { return n.switchOn(ctx) })
	f.verb(ctx, mux, "agent-off", func(n *node, _ *http.Request) error { n.switchOff(); return nil })
	f.verb(ctx, mux, "kill", func(n *node, r *http.Request) error { n.kernel.Kill(r.FormValue("before") != ""); return nil })
	f.verb(ctx, mux, "spare", func(n *node, _ *http.Request) error { n.kernel.Spare(); return nil })
	f.verb(ctx, mux, "clock", func(n *node, r *http.Request) error { return n.step(ctx, r.FormValue("off")) })
	f.verb(ctx, mux, "fill", func(n *node, _ *http.Request) error { return n.fill(true) })
	f.verb(ctx, mux, "empty", func(n *node, _ *http.Request) error { return n.fill(false) })
	f.verb(ctx, mux, "put", func(n *node, r *http.Request) error { return n.put(r.FormValue("path"), r.FormValue("value")) })
	f.verb(ctx, mux, "take", func(n *node, r *http.Request) error { n.kernel.Take(r.FormValue("path")); return nil })
	f.verb(ctx, mux, "unready", func(n *node, r *http.Request) error {
		return n.breaks(ctx, cmp.Or(r.FormValue("cause"), "container runtime is down"))
	})
	f.verb(ctx, mux, "ready", func(n *node, _ *http.Request) error { return n.breaks(ctx, "") })
}

func (f *fleet) comeBack(ctx context.Context, n *node) error {
	if err := n.comeBack(ctx); err != nil {
		return err
	}
	f.carriers.revive(n.name)
	return nil
}

// verb serves /<name>?node=<name>: something that happens to one node.
func (f *fleet) verb(ctx context.Context, mux *http.ServeMux, name string, do func(n *node, r *http.Request) error) {
	mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
		n := f.byName[r.FormValue("node")]
		if n == nil {
			http.Error(w, fmt.Sprintf("no node %q", r.FormValue("node")), http.StatusNotFound)
			return
		}
		if err := do(n, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		klog.FromContext(ctx).Info("Done to a hollow node", "what", name, "node", n.name)
	})
}

// serveImages is POST /images?pattern=<regexp>: which images exist from now on; an empty pattern is
// all.
func (f *fleet) serveImages(w http.ResponseWriter, r *http.Request) {
	if err := f.carriers.serve(r.FormValue("pattern")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// cook is POST /recipe?pattern=<regexp>&recipe=<what>&detail=<of it>: what is wrong with images
// from now on, see parseRecipe.
func (f *fleet) cook(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	made, err := parseRecipe(r.Form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.carriers.cook(made)
}

// showJournals shows every call that every kernel got, by node. With ?take=true, the next answer
// begins where this one ends.
func (f *fleet) showJournals(w http.ResponseWriter, r *http.Request) {
	all := make(map[string][]fake.Call, len(f.nodes))
	for _, n := range f.nodes {
		if all[n.name] = n.kernel.Calls(); r.FormValue("take") == "true" {
			all[n.name] = n.kernel.TakeCalls()
		}
	}
	reply(w, r, all)
}

// streamChanges writes an empty line at each change of any kernel, until the reader goes away.
func (f *fleet) streamChanges(w http.ResponseWriter, r *http.Request) {
	changed := make(chan struct{}, 1)
	for _, n := range f.nodes {
		changes, err := n.kernel.Changes(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		go func() {
			for range changes {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}()
	}
	out := http.NewResponseController(w)
	for {
		if _, err := fmt.Fprintln(w); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// vitals is what this process, with all agents, takes, and what was done to it.
type vitals struct {
	Goroutines   int    `json:"goroutines"`
	Descriptors  int    `json:"descriptors"`
	HeapBytes    uint64 `json:"heapBytes"` // after a garbage collection
	AgentKills   int    `json:"agentKills"`
	RefusedPulls int64  `json:"refusedPulls"`
}

func (f *fleet) showVitals(w http.ResponseWriter, r *http.Request) {
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	v := vitals{
		Goroutines: runtime.NumGoroutine(), Descriptors: len(descriptors), HeapBytes: memory.HeapAlloc, RefusedPulls: f.carriers.refused.Load(),
	}
	for _, n := range f.nodes {
		v.AgentKills += n.kernel.Kills()
	}
	reply(w, r, v)
}

func (f *fleet) showNodes(w http.ResponseWriter, r *http.Request) {
	all := make([]truth, 0, len(f.nodes))
	for _, n := range f.nodes {
		t, err := n.truth()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		all = append(all, t)
	}
	reply(w, r, all)
}

func reply(w http.ResponseWriter, r *http.Request, content any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(content); err != nil {
		klog.FromContext(r.Context()).V(1).Info("Reader of the truth went away", "error", err.Error())
	}
}
