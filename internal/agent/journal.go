// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	journalFile   = "journal.json"
	journalSchema = 2
)

// key names an order: the Module it comes from.
type key struct {
	Namespace, Name string
}

func (k key) String() string { return k.Namespace + "/" + k.Name }

// MarshalText makes key usable as a JSON object's key.
func (k key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote. Neither part of a Module's identity can hold a slash.
func (k *key) UnmarshalText(text []byte) error {
	for i, c := range text {
		if c == '/' {
			k.Namespace, k.Name = string(text[:i]), string(text[i+1:])
			return nil
		}
	}
	return fmt.Errorf("%q is not namespace/name", text)
}

// journal is what the agent did in this boot. It is written before each step, so that the next agent knows what this
// one began; what became of it, the kernel knows. A new boot begins a new journal: its kernel is empty.
type journal struct {
	BootID string `json:"bootID"`
	// Loaded by order.
	Loaded map[key]*loaded `json:"loaded,omitempty"`
	// Replaced are the host's own modules that were unloaded for an order, in that order: to be put back when it goes.
	Replaced map[key][]string `json:"replaced,omitempty"`
	// Refused builds, by what the kernel said of them.
	Refused map[string]refusal `json:"refused,omitempty"`
	// RolledBack are orders that were tried in this boot and failed, with a previous one to go back to.
	RolledBack map[key]rolledBack `json:"rolledBack,omitempty"`
	// Worked is, of each order, the last form in which it was fulfilled. It outlives boots.
	Worked map[key]*workedOrder `json:"worked,omitempty"`
	// Deliveries last used by each order, newest first, at most two. They outlive boots.
	Deliveries map[key][]string `json:"deliveries,omitempty"`
}

// loaded is what one order brought into the kernel, or began to.
type loaded struct {
	Item       v1beta1.ModuleItem   `json:"item"`
	Config     v1beta1.ModuleConfig `json:"config"`
	DeliveryID string               `json:"deliveryID,omitempty"`
	// Complete is false between the intent and the verified end of a load.
	Complete bool `json:"complete,omitempty"`
	// BuiltIn: the kernel has it compiled in; nothing was loaded.
	BuiltIn bool `json:"builtIn,omitempty"`
	// Main is the module that the order names.
	Main string `json:"main"`
	// Modules in load order, Main among them.
	Modules []loadedModule `json:"modules,omitempty"`
	// Began is when the load of Main began; zero: it was live already.
	Began metav1.Time `json:"began,omitempty"`
	// Since is when Main became live.
	Since metav1.Time `json:"since,omitempty"`
	// Repairs counts how often it went away although it was wanted, and LastRepair is when it was loaded again for the last time.
	Repairs    int32        `json:"repairs,omitempty"`
	LastRepair *metav1.Time `json:"lastRepair,omitempty"`
	// Observed right after the load.
	Observed *v1beta1.ObservedModule `json:"observed,omitempty"`
}

// loadedModule is one module of a load.
type loadedModule struct {
	Name string `json:"name"`
	// BuildID of what is in the kernel.
	BuildID string `json:"buildID,omitempty"`
	// Planned is the build that the delivery or the host's tree has. It differs from BuildID for a dependency that was
	// live before and is taken as it is.
	Planned string `json:"planned,omitempty"`
	// Content is the file's digest where it has no build ID.
	Content string `json:"content,omitempty"`
	// Ours: not live before, or adopted as the order's main module. Only these are ever unloaded.
	Ours bool `json:"ours,omitempty"`
}

// drop takes a module out of the load.
func (l *loaded) drop(name string) {
	l.Modules = slices.DeleteFunc(l.Modules, func(m loadedModule) bool { return m.Name == name })
}

func (l *loaded) module(name string) (loadedModule, bool) {
	if l == nil {
		return loadedModule{}, false
	}
	for _, m := range l.Modules {
		if m.Name == name {
			return m, true
		}
	}
	return loadedModule{}, false
}

// begin returns a journal for this boot: the old one if it is of this boot, else an empty one that keeps the
// deliveries and what worked. It tells whether anything was dropped.
func (j *journal) begin(bootID string) (*journal, bool) {
	if j.BootID == bootID {
		return j, false
	}
	return &journal{
		BootID: bootID,
		Loaded: map[key]*loaded{}, Deliveries: j.Deliveries, Worked: j.Worked,
	}, true
}

// used notes that an order uses a delivery. It tells whether the journal changed.
func (j *journal) used(k key, id string) bool {
	had := j.Deliveries[k]
	if id == "" || len(had) > 0 && had[0] == id {
		return false
	}
	now := []string{id}
	for _, old := range had {
		if old != id && len(now) < 2 {
			now = append(now, old)
		}
	}
	if j.Deliveries == nil {
		j.Deliveries = map[key][]string{}
	}
	j.Deliveries[k] = now
	return true
}

// replace notes that a module leaves for an order.
func (j *journal) replace(k key, name string) {
	if j.Replaced == nil {
		j.Replaced = map[key][]string{}
	}
	j.Replaced[k] = append(j.Replaced[k], name)
}

// neededBy finds an order other than k that counts on the module.
func (j *journal) neededBy(k key, name string) (key, bool) {
	for other, l := range j.Loaded {
		if _, ok := l.module(name); ok && other != k {
			return other, true
		}
	}
	return key{}, false
}

// oursByOther tells whether the module is in the kernel because of an order other than k.
func (j *journal) oursByOther(k key, name string) bool {
	for other, l := range j.Loaded {
		if m, ok := l.module(name); ok && other != k && m.Ours {
			return true
		}
	}
	return false
}

// readJournal returns an empty journal when there is none. One that cannot be trusted is moved aside, which the error says: the kernel and the
// last reported status say enough to go on.
func readJournal(dir string) (*journal, error) {
	read := &journal{}
	err := statefile.Read(dir, journalFile, journalSchema, read)
	if err != nil {
		read = &journal{}
	}
	if read.Loaded == nil {
		read.Loaded = map[key]*loaded{}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return read, err
}

// noteJournal puts the journal on disk. Orders that worked and deliveries outlive the kernel, so that it is whole after a power cut as well.
func (a *Agent) noteJournal() error { return a.put(journalFile, journalSchema, a.journal) }

// put replaces a file in the state directory.
func (a *Agent) put(name string, schema int, content any) error {
	data, err := statefile.Encode(schema, content)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return statefile.Replace(a.o.StateDir, name, data, 0o600, !a.o.NoSync)
}
