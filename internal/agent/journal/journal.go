// SPDX-License-Identifier: Apache-2.0

// Package journal is the agent's memory on disk: what it did in this boot, and of each order what
// worked last. It is written before each call to the kernel, so that the next agent knows what this
// one began, and is whole after a power cut.
package journal

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// File is the journal's name in the state directory.
const File = "journal.json"

const schema = 2

// Journal is what the agent did. A new boot begins a new one: its kernel is empty.
type Journal struct {
	NodeName   string               `json:"nodeName,omitempty"`   // empty: written before this was noted
	ClusterUID types.UID            `json:"clusterUID,omitempty"` // empty until it is known
	BootID     string               `json:"bootID"`
	Loaded     map[orders.Key]*Load `json:"loaded,omitempty"` // by order
	// Replaced are the host's own modules that left for an order, to be put back when it goes.
	Replaced map[orders.Key][]string `json:"replaced,omitempty"`
	// Parameters of replaced modules, by module, as they were when it left.
	Parameters map[string]map[string]string `json:"parameters,omitempty"`
	Refused    map[string]Refusal           `json:"refused,omitempty"` // what the kernel said of builds
	// RolledBack are orders that failed in this boot, with a previous one to go back to.
	RolledBack map[orders.Key]RolledBack `json:"rolledBack,omitempty"`
	// Worked is, of each order, the last form in which it was carried out. It outlives boots.
	Worked map[orders.Key]*Worked `json:"worked,omitempty"`
	// Deliveries last used by each order, newest first, at most two. They outlive boots.
	Deliveries map[orders.Key][]string `json:"deliveries,omitempty"`

	disk disk
}

// disk is where a file is kept. It is there when a write returns.
type disk struct {
	dir  string
	sync statefile.Sync
}

// Load is what one order brought into the kernel, or began to.
type Load struct {
	Item       v1beta1.ModuleItem   `json:"item"`
	Config     v1beta1.ModuleConfig `json:"config"`
	DeliveryID string               `json:"deliveryID,omitempty"`
	Complete   bool                 `json:"complete,omitempty"` // false between the intent and the verified end of a load
	BuiltIn    bool                 `json:"builtIn,omitempty"`  // the kernel has it compiled in; nothing was loaded
	Main       string               `json:"main"`               // the module that the order names
	Modules    []Module             `json:"modules,omitempty"`  // in load order, Main among them
	// Adopted: Main was live before, so that the order's parameters were not passed.
	Adopted bool `json:"adopted,omitempty"`
	// Kinds are the types of those of the order's parameters that Main has; nil: not known.
	Kinds map[string]string `json:"kinds"`
	Began metav1.Time       `json:"began,omitempty"` // when the load of Main began; zero: it was live already
	Since metav1.Time       `json:"since,omitempty"` // when Main became live
	// Repairs counts how often it went away although it was wanted, the last time at LastRepair.
	Repairs    int32                   `json:"repairs,omitempty"`
	LastRepair *metav1.Time            `json:"lastRepair,omitempty"`
	Observed   *v1beta1.ObservedModule `json:"observed,omitempty"` // right after the load
}

// Module is one module of a load.
type Module struct {
	Name    string `json:"name"`
	BuildID string `json:"buildID,omitempty"` // of what is in the kernel
	// Planned is the build on disk. It differs from BuildID for a dependency that was live before.
	Planned string `json:"planned,omitempty"`
	Content string `json:"content,omitempty"` // the file's digest where it has no build ID
	// Ours: not live before, or adopted as the order's main module. Only these are ever unloaded.
	Ours bool `json:"ours,omitempty"`
}

// Drop takes a module out of the load.
func (l *Load) Drop(name string) {
	l.Modules = slices.DeleteFunc(l.Modules, func(m Module) bool { return m.Name == name })
}

// Module finds a module of the load; nil has none.
func (l *Load) Module(name string) (Module, bool) {
	if l != nil {
		if i := slices.IndexFunc(l.Modules, func(m Module) bool { return m.Name == name }); i >= 0 {
			return l.Modules[i], true
		}
	}
	return Module{}, false
}

// Read returns an empty journal when there is none. One that cannot be trusted, or is of another
// node, is moved aside, which the error says: the kernel and the last status say enough to go on.
func Read(dir, node string, sync statefile.Sync) (*Journal, error) {
	j := &Journal{}
	_, err := statefile.Read(dir, File, schema, j)
	if cause := j.check(node); err == nil && cause != nil {
		err = statefile.SetAside(dir, File, cause)
	}
	if err != nil {
		*j = Journal{}
	}
	j.NodeName, j.disk = node, disk{dir, sync}
	if j.Loaded == nil {
		j.Loaded = map[orders.Key]*Load{}
	}
	return j, err
}

// check refuses what the agent never writes, and would fall over.
func (j *Journal) check(node string) error {
	if j.NodeName != "" && j.NodeName != node {
		return fmt.Errorf("it is of node %q", j.NodeName)
	}
	for k, l := range j.Loaded {
		if l == nil {
			return fmt.Errorf("it has no load of order %s", k)
		}
	}
	for k, w := range j.Worked {
		if w == nil {
			return fmt.Errorf("it has no order %s that worked", k)
		}
	}
	for k, r := range j.RolledBack {
		if r.Times < 1 {
			return fmt.Errorf("order %s failed %d times", k, r.Times)
		}
	}
	return nil
}

// Write puts the journal on disk.
func (j *Journal) Write() error { return statefile.Write(j.disk.dir, File, schema, j, j.disk.sync) }

// Join notes the cluster that the node is in. What was noted in another one is forgotten, but for
// what this boot's kernel has: it tells whether it was.
func (j *Journal) Join(cluster types.UID) (forgot bool, err error) {
	if j.ClusterUID == cluster {
		return false, nil
	}
	if forgot = j.ClusterUID != ""; forgot {
		j.Deliveries, j.Worked, j.RolledBack = nil, nil, nil
	}
	was := j.ClusterUID
	j.ClusterUID = cluster
	if err := j.Write(); err != nil {
		j.ClusterUID = was // to be noted again
		return forgot, err
	}
	return forgot, nil
}

// Begin drops what another boot did, but for deliveries and what worked. It tells whether it did.
func (j *Journal) Begin(bootID string) bool {
	if j.BootID == bootID {
		return false
	}
	*j = Journal{NodeName: j.NodeName, ClusterUID: j.ClusterUID, BootID: bootID, Loaded: map[orders.Key]*Load{}, Deliveries: j.Deliveries,
		Worked: j.Worked, disk: j.disk}
	return true
}

// Used notes that an order uses a delivery. It tells whether the journal changed.
func (j *Journal) Used(k orders.Key, id string) bool {
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
	put(&j.Deliveries, k, now)
	return true
}

// Replace notes that a module leaves for an order.
func (j *Journal) Replace(k orders.Key, name string) {
	put(&j.Replaced, k, append(j.Replaced[k], name))
}

// NoteParameters notes those of a module that leaves.
func (j *Journal) NoteParameters(m host.Module) {
	if j.Parameters == nil {
		j.Parameters = map[string]map[string]string{}
	}
	j.Parameters[m.Name] = m.Parameters
}

// PutBack forgets what an order has replaced, and the parameters of what none replaces any more. On
// an error, it is as it was.
func (j *Journal) PutBack(k orders.Key) error {
	names, parameters := j.Replaced[k], maps.Clone(j.Parameters)
	delete(j.Replaced, k)
	maps.DeleteFunc(j.Parameters, func(name string, _ map[string]string) bool {
		for _, others := range j.Replaced {
			if slices.Contains(others, name) {
				return false
			}
		}
		return true
	})
	err := j.Write()
	if err != nil {
		j.Replaced[k], j.Parameters = names, parameters
	}
	return err
}

func put[V any](m *map[orders.Key]V, k orders.Key, v V) {
	if *m == nil {
		*m = map[orders.Key]V{}
	}
	(*m)[k] = v
}

// NeededBy finds an order other than k that counts on the module.
func (j *Journal) NeededBy(k orders.Key, name string) (orders.Key, bool) {
	for other, l := range j.Loaded {
		if _, ok := l.Module(name); ok && other != k {
			return other, true
		}
	}
	return orders.Key{}, false
}

// OursByOther tells whether the module is in the kernel because of an order other than k.
func (j *Journal) OursByOther(k orders.Key, name string) bool {
	for other, l := range j.Loaded {
		if m, ok := l.Module(name); ok && other != k && m.Ours {
			return true
		}
	}
	return false
}

// OursLive are the live modules that an unload for k takes out, last loaded first: loaded for it,
// still the same build, and needed by no other order.
func (j *Journal) OursLive(k orders.Key, l *Load, live map[string]host.Module) []Module {
	if l == nil {
		return nil
	}
	var ours []Module
	for _, m := range slices.Backward(l.Modules) {
		now, ok := live[m.Name]
		if !ok || !m.Ours || orders.IdentityOf(now) != m.BuildID {
			continue
		}
		if _, needed := j.NeededBy(k, m.Name); !needed {
			ours = append(ours, m)
		}
	}
	return ours
}

// Wanted are the held deliveries that an order, or its way back, cannot do without.
func (j *Journal) Wanted(ordered map[orders.Key]*v1beta1.NodeModuleSpec, held map[string]string) map[string]string {
	wanted := map[string]string{}
	keep := func(id string) {
		if digest, ok := held[id]; ok {
			wanted[id] = digest
		}
	}
	for k, o := range ordered {
		keep(orders.DeliveryID(o))
		if o.Next != nil {
			keep(o.Next.ID)
		}
		if w := j.Worked[k]; w != nil {
			keep(w.DeliveryID)
		}
	}
	for _, l := range j.Loaded {
		keep(l.DeliveryID)
	}
	return wanted
}

// Needed are the deliveries to keep where there is room: the wanted, and one step back per order.
func (j *Journal) Needed(ordered map[orders.Key]*v1beta1.NodeModuleSpec, held map[string]string) map[string]string {
	need := j.Wanted(ordered, held)
	for k := range ordered {
		for _, id := range j.Deliveries[k] {
			if digest, ok := held[id]; ok {
				need[id] = digest
			}
		}
	}
	return need
}
