// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// loadBreaks break the promises of what is something to lose.
var loadBreaks = map[string]func(*doctor) []string{
	"paused-first-load": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.modified("author", func(m *v1beta1.Module) { m.Spec.Rollout.Paused = true })
		return d.first(0, func(o *spec) { o.Config.ContainerImage = nic.image(1) })
	},
	"first-load-turn": func(d *doctor) []string {
		d.first(1, func(o *spec) { o.Config.InTreeModulesToRemove = []string{"stock"} })
		return d.first(0, func(o *spec) { o.Config.InTreeModulesToRemove = []string{"stock"} })
	},
	"what-stays-is-labelled": func(d *doctor) []string {
		d.order("n0", func(o *spec) { o.Config.ContainerImage, o.UnloadPolicy = nic.image(1), v1beta1.UnloadOnReboot })
		d.known()
		broken := d.node("node", func(n *corev1.Node) { delete(n.Labels, v1beta1.ReadyLabel(namespace, nic.name)) })
		if each(staysLabelled)(d.trial().still()) == "" {
			return nil // at rest, it is broken, too
		}
		return broken
	},
	"what-is-asked-for-stays": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.image("n0", 1)
		d.modified("author", setImage(0))
		d.known()
		return asked(func(p *Promise) string {
			if p.pass == nil {
				return ""
			}
			return p.pass(d.trial())
		})
	},
	"shared-limit": func(d *doctor) []string {
		d.act("begin", func() { d.create(aux, 0) })
		d.World.rest(10 * time.Minute)
		d.limits.Nodes = 1
		other := last[*v1beta1.Module](&d.judge, kindModule, aux.key()).DeepCopy()
		other.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = aux.image(1)
		d.wrote("author", kindModule, aux.key(), other)
		d.known()
		d.orders("module", "n1", func(n *v1beta1.NodeModulesConfig) { aux.orderOf(n).Config.ContainerImage = aux.image(1) })
		d.modified("author", setImage(1))
		d.known()
		return d.image("n0", 1)
	},
}

// first shows the first order of a node that has lost all.
func (d *doctor) first(i int, change func(*spec)) []string {
	m := d.nodes[i]
	must(m.kernel.Rmmod(nic.name))
	n := last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, m.name).DeepCopy()
	n.Status = v1beta1.NodeModulesConfigStatus{}
	change(nic.orderOf(n))
	delete(d.judge.past, kindOrders+"/"+m.name)
	d.known()
	return d.wrote("module", kindOrders, m.name, n)
}
