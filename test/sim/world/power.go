// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	orderkey "github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/test/sim/disk"
	"github.com/drover-project/drover/test/sim/images"
)

// skewed is a clock that is ahead of the world's, or behind.
type skewed struct {
	*clocktesting.FakeClock
	ahead *time.Duration
}

func (s skewed) Now() time.Time                  { return s.FakeClock.Now().Add(*s.ahead) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// hasty is a clock on which what is waited for happens at once.
type hasty struct{ skewed }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	timer := h.FakeClock.NewTimer(d)
	h.Step(d)
	return timer
}

// power is a machine's mains and battery: its disk when the power goes, and its clock.
type power struct {
	disk    *disk.Disk
	left    *disk.Image // what is on the disk when the power is back; nil: it has not gone
	was     *before     // when the power went
	cuts    int         // so far
	stepped bool        // the clock has, at any time
	doom    *doom       // nil: the power stays
	ahead   time.Duration
	// seen are the orders that the agent was shown since its last kernel call, those of then first;
	// empty: it has made none.
	seen   []*v1beta1.NodeModulesConfig
	broken string // what the kernel is asked for that is not whole
}

// doom is a cut that is to come at a step of the agent's.
type doom struct {
	sync   bool // before one that syncs; else before a call of the kernel
	after  int  // so many others
	chance uint8
}

// clock is the machine's.
func (m *machine) clock() hasty { return hasty{skewed{m.w.clock, &m.ahead}} }

// setClock makes the machine's clock another. A process' own does not jump (it has a monotonic
// reading), so the agent begins anew.
func (m *machine) setClock(ahead time.Duration) {
	if m.ahead != ahead {
		m.ahead, m.stepped = ahead, true
		m.w.judge.kernel(m)
		m.w.judge.kernelOf(m.name).Stepped(m.clock().Now())
		must(m.start())
	}
}

// recover sets the machine's clock right, and boots it where a call of its kernel has not returned.
func (m *machine) recover() {
	m.setClock(0)
	states, err := m.kernel.Modules()
	must(err)
	for _, state := range states {
		if state != host.StateLive {
			m.reboot("")
			return
		}
	}
}

// setClock makes the operator's clock another. A new process of it begins.
func (w *World) setClock(ahead time.Duration) {
	if w.ahead != ahead {
		w.ahead, w.stepped = ahead, true
		must(w.startOperator())
	}
}

// sync is how the agent's files get to the disk.
func (m *machine) sync(f *os.File) error {
	m.step(true, "a sync of "+strings.TrimRight(filepath.Base(f.Name()), "0123456789")) // some names are by chance
	return m.disk.Sync(f)
}

// step is a moment at which the power may go.
func (m *machine) step(sync bool, what string) {
	switch {
	case m.doom == nil || m.doom.sync != sync:
	case m.doom.after > 0:
		m.doom.after--
	default:
		m.w.Trace("      %s: the power goes before %s", m.name, what)
		m.dark(m.doom.chance)
		panic(death{})
	}
}

// dark is when the power has gone: the kernel forgets all, and the disk what was not synced.
func (m *machine) dark(chance uint8) {
	m.doom = nil
	m.cuts++
	image, err := m.disk.Cut(rand.New(rand.NewPCG(uint64(chance), 3))) //nolint:gosec // to be repeated
	must(err)
	m.left, m.was = image, m.remember()
	m.kernel.Reboot("")
}

// light brings back what a power cut has left on the disk.
func (m *machine) light() error {
	if m.left == nil {
		return nil
	}
	m.pods.Replaced() // their containers begin anew
	err := m.disk.Put(m.left)
	m.left = nil
	return err
}

// anew is a new disk.
func (m *machine) anew() (err error) {
	m.left, m.doom, m.seen = nil, nil, nil
	m.disk, err = disk.New(m.dir)
	return err
}

// powerCut is one between two rounds of the agent.
func (m *machine) powerCut(chance uint8) {
	m.dark(chance)
	was := m.was
	m.booted()
	for range 2 {
		m.w.look(m)
	}
	m.w.judge.powered(m, was, func(p *Promise) func(*lit) string { return p.back })
}

// shows tells the agent of orders.
func (m *machine) shows(n *v1beta1.NodeModulesConfig) {
	if len(m.seen) > 0 {
		m.seen = append(m.seen, n)
	}
	m.agent.Show(n)
}

// powered looks at what a power cut has left, once the agent has begun.
func (m *machine) powered() {
	if m.was != nil {
		m.w.judge.powered(m, m.was, func(p *Promise) func(*lit) string { return p.lit })
	}
	m.was = nil
}

// wired is a kernel as the agent reaches it.
type wired struct {
	*fake.Host
	m *machine
}

// Load implements host.Host.
func (k wired) Load(ctx context.Context, r host.LoadRequest) error {
	content, err := io.ReadAll(r.File)
	must(err)
	if k.m.doom != nil && !k.m.doom.sync && k.m.doom.after == 0 {
		k.m.w.judge.downIn(k.m, content)
	}
	k.m.step(false, "the load of "+r.Name)
	k.m.seen = []*v1beta1.NodeModulesConfig{k.m.shown}
	if !images.Whole(content) {
		k.m.broken = fmt.Sprintf("%d bytes for %s that no image has", len(content), r.Name)
	}
	if seeker, ok := r.File.(io.Seeker); ok {
		_, err = seeker.Seek(0, io.SeekStart)
	}
	must(err)
	return k.Host.Load(ctx, r) //nolint:wrapcheck // as the kernel says it
}

// Unload implements host.Host.
func (k wired) Unload(ctx context.Context, r host.UnloadRequest) error {
	k.m.step(false, "the unload of "+r.Name)
	k.m.seen = []*v1beta1.NodeModulesConfig{k.m.shown}
	return k.Host.Unload(ctx, r) //nolint:wrapcheck // as the kernel says it
}

// powerPromises are about a node whose power was cut, whose clock steps, or whose kernel hangs.
var powerPromises = []Promise{
	{Name: "files-outlive-cut", Text: "After a power cut, each of the agent's files is whole: none is put aside.",
		Source: sourceWrong + ", The previous build serves; internal/agent/statefile", lit: filesOutliveCut},
	{Name: "held-outlives-cut", Text: "What an agent says to have delivered is on its disk, whole, after a power cut.",
		Source: sourceOrders + ", 3; " + sourceWrong + ", The previous build serves", lit: heldOutlivesCut},
	{Name: "worked-outlives-cut", Text: "The form in which an order last worked is remembered after a power cut.",
		Source: sourceWrong + ", The previous build serves", lit: workedOutlivesCut},
	{Name: "record-outlives-cut", Text: "Orders that were carried out are recorded, also after a power cut.",
		Source: "docs/design/0007-boot.md; " + sourceWrong, lit: recordOutlivesCut},
	{Name: "comes-back", Text: "What was live before a power cut is loaded again at once, with no delivery, where nothing has changed.",
		Source: sourceAgent + ", Truth after a reboot; " + sourceWrong + ", The previous build serves", back: comesBack},
	{Name: "whole-loads", Text: "No kernel is asked for a file that is not whole.", Source: sourceAgent + ", Consequences; " + sourceWrong,
		call: wholeLoads},
	{Name: "hung-is-left", Text: "A module whose call has not returned, or was killed, is left alone until the next boot.",
		Source: "docs/design/0044-hung-calls.md, What happens; " + sourceWrong + ", Decision", call: hungIsLeft},
	{Name: "waits-end", Text: "No wait is longer than a day, nor one after a single strike than five minutes, whatever a clock said.",
		Source: sourceWrong + ", Decision and The previous build serves; internal/agent/fuse", of: kindOrders, write: reported(waitsEnd)},
}

// before is what a node was when its power was cut.
type before struct {
	boot  string
	told  *v1beta1.NodeModulesConfig // as its agent has left it; nil: there is none
	shown *v1beta1.NodeModulesConfig
	live  map[string]string // images, by kernel module
	aside map[string]bool   // files that are put aside
	has   map[string]bool   // records of deliveries
}

// remember notes what a node is.
func (m *machine) remember() *before {
	boot, err := m.kernel.BootID()
	must(err)
	b := &before{boot: boot, told: last[*v1beta1.NodeModulesConfig](&m.w.judge, kindOrders, m.name), shown: m.shown,
		live: map[string]string{}, aside: m.aside(), has: map[string]bool{}}
	for _, s := range subjects {
		b.live[s.name] = s.live(m)
	}
	records, err := filepath.Glob(filepath.Join(m.dir, "store", "deliveries", "*.json"))
	must(err)
	for _, r := range records {
		b.has[strings.TrimSuffix(filepath.Base(r), ".json")] = true
	}
	return b
}

// aside are the files that the agent has put aside.
func (m *machine) aside() map[string]bool {
	all := map[string]bool{}
	for _, pattern := range []string{"state/*.aside", "fuse/*.damaged", "store/damaged/*"} {
		names, err := filepath.Glob(filepath.Join(m.dir, pattern))
		must(err)
		for _, name := range names {
			all[filepath.Base(name)] = true
		}
	}
	return all
}

// lit is a node whose power is back, and its agent has begun.
type lit struct {
	judge *trial
	m     *machine
	*before
	order *v1beta1.NodeModuleSpec // as it was shown
}

// powered asks the promises about a node whose power is back.
func (j *judge) powered(m *machine, b *before, ask func(*Promise) func(*lit) string) {
	for _, t := range j.all() {
		t.judged(func(p *Promise) string {
			if ask(p) == nil {
				return ""
			}
			return ask(p)(&lit{t, m, b, t.orderOf(b.shown)})
		})
	}
}

func filesOutliveCut(l *lit) string {
	for name := range l.m.aside() {
		if !l.aside[name] {
			return fmt.Sprintf("%s put %s aside after a power cut", l.m.name, name)
		}
	}
	return ""
}

func heldOutlivesCut(l *lit) string {
	if l.told == nil {
		return ""
	}
	for _, a := range l.told.Status.Artifacts {
		if !l.has[a.ID] {
			continue // the agent has thrown it away since, or another disk had it
		}
		if _, err := l.m.store.Open(a.ID); err != nil {
			return fmt.Sprintf("%s had the delivery %s before a power cut: %v", l.m.name, a.ID, err)
		}
	}
	return ""
}

// served says whether a node's agent had said that what is ordered is live, and it was; empty: no.
func (l *lit) served() string {
	live := l.judge.liveIn(l.told)
	if !loads(l.order) || live == nil || live.BootID != l.boot || live.Config == nil ||
		live.Config.ContainerImage != l.before.live[l.judge.name] {
		return ""
	}
	return live.Config.ContainerImage
}

func workedOutlivesCut(l *lit) string {
	image := l.served()
	if image == "" {
		return ""
	}
	done, err := journal.Read(filepath.Join(l.m.dir, "state"), l.m.name, statefile.NoSync)
	must(err)
	w := done.Worked[keyOf(l.judge.subject)]
	if w == nil || w.Config.ContainerImage != image && w.Config.ContainerImage != l.order.Config.ContainerImage {
		return fmt.Sprintf("%s had %s live before a power cut, and remembers %+v", l.m.name, images.Short(image), w)
	}
	return ""
}

func keyOf(s subject) orderkey.Key { return orderkey.Key{Namespace: namespace, Name: s.name} }

func recordOutlivesCut(l *lit) string {
	var record struct {
		ClusterUID string                        `json:"clusterUID"`
		NodeName   string                        `json:"nodeName"`
		Spec       v1beta1.NodeModulesConfigSpec `json:"spec"`
	}
	if len(l.m.seen) == 0 || l.judge.orderOf(l.m.seen[0]) == nil {
		return ""
	}
	found, err := statefile.Read(filepath.Join(l.m.dir, "state"), "record.json", 2, &record)
	has := l.judge.orderOf(&v1beta1.NodeModulesConfig{Spec: record.Spec})
	if found && err == nil && (has == nil || slices.ContainsFunc(l.m.seen, func(n *v1beta1.NodeModulesConfig) bool {
		return reflect.DeepEqual(l.judge.orderOf(n), has)
	})) {
		return ""
	}
	return fmt.Sprintf("%s has carried out %s, and has recorded %s: %v", l.m.name, say(l.judge.orderOf(l.m.seen[0])), say(has), err)
}

// comesBack leaves out what the kernel was asked for and refused, and a node that keeps going down.
func comesBack(l *lit) string {
	image := l.served()
	if image == "" || l.order.Paused || l.order.Config.ContainerImage != image || l.judge.live(l.m) == image ||
		!reflect.DeepEqual(l.order, l.judge.orderOf(l.m.shown)) || l.m.release != l.order.Config.KernelVersion {
		return ""
	}
	boots := 0
	for _, c := range l.m.kernel.Calls() {
		switch {
		case c.Call == "reboot" && l.m.clock().Since(c.Time) < 3*time.Hour: // of which two may be a step of the clock
			boots++
		case c.Call == "reboot":
			boots = 0
		}
		if _, struck := l.judge.kernelOf(l.m.name).Struck[c.BuildID]; struck && images.OfBuild(c.BuildID) == image {
			return ""
		}
	}
	if boots > 1 || slices.ContainsFunc(l.m.sinceBoot(), func(c fake.Call) bool { return c.For == l.judge.key() && c.Result != "" }) {
		return ""
	}
	return fmt.Sprintf("%s had %s live before a power cut, and does not load it again: ordered %s; attempt %s", l.m.name, images.Short(image),
		say(l.order), l.judge.tried(last[*v1beta1.NodeModulesConfig](l.judge.judge, kindOrders, l.m.name)))
}

// sinceBoot are the kernel's calls in this boot.
func (m *machine) sinceBoot() []fake.Call {
	calls := m.kernel.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].Call == "reboot" {
			return calls[i+1:]
		}
	}
	return calls
}
