// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// build delivers a new build and orders it. It is signed by a key that the node has, by another, or
// not at all.
func (c *chaos) build(name string) {
	c.next++
	m := synth.Module{Name: name, Version: fmt.Sprint(c.next), SoftdepPre: []string{"extra"}, Params: []kmod.Param{{Name: "a", Type: "int"}}}
	id := fmt.Sprintf("d%d", c.next)
	modules := []synth.Module{m}
	if name == "beta" {
		modules[0].Depends = []string{"core"}
		modules = append(modules, synth.Module{Name: "core"})
	}
	owner := []*synth.Owner{c.owners.trusted, c.owners.trusted, c.owners.stranger, nil}[c.random.IntN(4)]
	files := map[string][]byte{}
	for _, m := range modules {
		file := ko(m)
		if owner != nil {
			file = c.signed(file, owner)
		}
		files[path.Join("lib/modules", release, "extra", m.Name+".ko")] = file
	}
	c.write(uidOf(id), files)
	c.builds[id] = chaosBuild{id: buildID(c.t, modules[0]), trusted: owner == c.owners.trusted}
	o := order(name, &v1beta1.Delivery{ID: id, CarrierUID: uidOf(id)})
	if name == "gamma" {
		o.Config.InTreeModulesToRemove = []string{"stock"}
	}
	if old := c.want[name]; old != nil {
		o.Paused, o.Retry = old.Paused, old.Retry
	}
	c.want[name] = &o
}

func (c *chaos) some(names ...string) string { return names[c.random.IntN(len(names))] }

// rarely is true once in so many times.
func (c *chaos) rarely(times int) bool { return c.random.IntN(times) == 0 }

// soon is a time within so many minutes.
func (c *chaos) soon(minutes int) time.Time {
	return c.clock.Now().Add(time.Duration(1+c.random.IntN(minutes*60)) * time.Second)
}

func (c *chaos) ordered(do func(o *v1beta1.NodeModuleSpec)) {
	if o := c.want[c.some(chaosNames...)]; o != nil {
		do(o)
	}
}

// labelGone takes a Module's selector label off the node.
func (c *chaos) labelGone(duration time.Duration) {
	name, now := c.some(chaosNames...), c.clock.Now()
	if _, already := c.away[name]; !already && c.want[name] != nil && c.want[name].State == "" {
		c.away[name] = span{now, now.Add(duration)}
	}
}

// boot makes an agent begin in a new boot.
func (c *chaos) boot(restart func()) {
	c.host.Secure(c.security(c.willEnforce))
	restart()
	c.begin()
}

// events are what can happen, by name.
func (c *chaos) events() map[string]func() {
	events := c.ordersChange()
	for _, more := range []map[string]func(){c.agentEnds(), c.kernelFails(), c.clusterFails()} {
		maps.Copy(events, more)
	}
	return events
}

func (c *chaos) ordersChange() map[string]func() {
	return map[string]func(){
		"new build": func() { c.build(c.some(chaosNames...)) },
		"parameters": func() {
			c.ordered(func(o *v1beta1.NodeModuleSpec) { o.Config.Modprobe.Parameters = []string{"a=" + fmt.Sprint(c.next)} })
		},
		"modprobe": func() {
			c.ordered(func(o *v1beta1.NodeModuleSpec) {
				o.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{c.some("-v", "-b")}}
				if c.rarely(2) {
					o.Config.Modprobe.Args = nil
				}
			})
		},
		"deleted":         func() { c.ordered(absent) },
		"back":            func() { c.ordered(func(o *v1beta1.NodeModuleSpec) { o.State, o.Reason = "", "" }) },
		"entry lost":      func() { c.want[c.some(chaosNames...)] = nil },
		"paused":          func() { c.ordered(func(o *v1beta1.NodeModuleSpec) { o.Paused = !o.Paused }) },
		"label gone":      func() { c.labelGone(time.Minute) },
		"label gone long": func() { c.labelGone(2 * deselectGrace) },
		"retry": func() {
			c.ordered(func(o *v1beta1.NodeModuleSpec) {
				now := metav1.NewTime(c.clock.Now()).Rfc3339Copy()
				o.Retry = &now
			})
		},
	}
}

func (c *chaos) agentEnds() map[string]func() {
	return map[string]func(){
		"agent killed": func() { c.killer.left, c.killer.crash = c.random.IntN(4), false },
		"agent restarted": func() {
			c.stopAgent()
			c.begin()
		},
		"power cut": func() { c.boot(func() { c.host.Reboot("") }) },
		"reboot": func() {
			c.stopAgent()
			c.boot(func() { c.host.Reboot("") })
		},
		"crash at a call": func() {
			if c.rarely(20) {
				c.killer.left, c.killer.crash = c.random.IntN(2), true
			}
		},
		"journal gone": func() {
			_ = os.Remove(filepath.Join(c.dir, "state", journal.File))
			clear(c.refusals)
			c.begin()
		},
	}
}

func (c *chaos) kernelFails() map[string]func() {
	all := slices.Concat(chaosNames, []string{"core", "stock", "extra"})
	load := func(f fake.Fault) { c.host.Script("finit_module", c.some(all...), f) }
	return map[string]func(){
		"rmmod":      func() { _ = c.host.Rmmod(c.some(all...)) },
		"insmod":     func() { _ = c.host.Insmod(ko(synth.Module{Name: c.some(all...), Version: "stranger"})) },
		"load fails": func() { load(fake.Fault{Errno: c.some("ENODEV", "EINVAL", "ENOMEM"), Times: 1 + c.random.IntN(3)}) },
		"busy": func() {
			c.host.Script("delete_module", c.some(all...), fake.Fault{Errno: "EAGAIN", Times: 1 + c.random.IntN(3)})
		},
		"slow": func() {
			c.host.Script(c.some("finit_module", "delete_module"), c.some(all...),
				fake.Fault{Delay: time.Duration(1+c.random.IntN(180)) * time.Second, Errno: c.some("", "", "EIO"), Times: 1})
		},
		"oops": func() { load(fake.Fault{Oops: true, Times: 1}) },
		"panic": func() {
			if c.rarely(4) {
				load(fake.Fault{Panic: true, Times: 1})
			}
		},
		"panic with dump": func() {
			if c.rarely(4) {
				load(fake.Fault{Panic: true, Dump: true, Times: 1})
			}
		},
		"unplugged":  func() { c.host.Unplug(c.some(all...)) },
		"plugged":    func() { c.host.Plug(c.some(all...)) },
		"held":       func() { _ = c.host.Hold(c.some(all...)) },
		"let go":     func() { _ = c.host.Unhold(c.some(all...)) },
		"mended":     func() { c.host.Mend() },
		"signatures": func() { c.willEnforce = !c.willEnforce; c.host.Secure(c.security(c.willEnforce)) },
	}
}

func (c *chaos) clusterFails() map[string]func() {
	s := c.server
	return map[string]func(){
		"status lost": func() {
			if s.object != nil {
				next := s.object.DeepCopy()
				next.Status = v1beta1.NodeModulesConfigStatus{}
				s.put(next)
			}
		},
		"server away": func() { s.away = c.soon(5) },
		"configs deleted": func() {
			s.object, s.forgotten = nil, c.soon(5)
		},
		"definitions deleted": func() { s.undefined = c.soon(10) },
	}
}
