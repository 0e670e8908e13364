// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/reported"
)

// slimConfig shares what a NodeModulesConfig holds with those of all other nodes: orders and
// reports repeat the Module's names, images and kernels on every node, once in spec and once in
// status. What an agent must not say, and what no controller reads, goes. Objects of the cache are
// never changed, so that it does not matter who else has a part of them.
func slimConfig(object any) (any, error) {
	config, ok := object.(*v1beta1.NodeModulesConfig)
	if !ok {
		return slim(object)
	}
	config.ManagedFields = nil
	if dropped := reported.Clean(config); dropped > 0 {
		metrics.DroppedFields.Add(float64(dropped))
	}
	held := make(map[string]bool, len(config.Status.Artifacts))
	for i := range config.Status.Artifacts {
		a := &config.Status.Artifacts[i]
		share(&a.ID, &a.Digest)
		held[a.ID] = true
	}
	for i := range config.Spec.Modules {
		order := &config.Spec.Modules[i]
		internItem(&order.ModuleItem)
		internConfig(&order.Config)
		share(&order.Reason)
		order.Delivery, order.Next = sharedDelivery(order.Delivery, held), sharedDelivery(order.Next, held)
	}
	for i := range config.Status.Attempts {
		a := &config.Status.Attempts[i]
		share(&a.Namespace, &a.Name, &a.Reason)
	}
	config.Labels = sharedLabels(config.Labels)
	// A list that was read grew by doubling.
	config.Spec.Modules, config.Status.Modules = fitted(config.Spec.Modules), fitted(config.Status.Modules)
	config.Status.Artifacts = fitted(config.Status.Artifacts)
	config.Spec.Modules = sharedOrders(config.Spec.Modules)
	internLive(config)
	return config, nil
}

// sharedDelivery forgets the carrier of what the node holds: nobody asks for it any more, as the
// API says of deliveries without one.
func sharedDelivery(d *v1beta1.Delivery, held map[string]bool) *v1beta1.Delivery {
	switch {
	case d == nil:
		return nil
	case !held[d.ID]:
		share(&d.ID)
		return d
	}
	return deliveries.same(d.ID, func() *v1beta1.Delivery { return &v1beta1.Delivery{ID: shared(d.ID)} })
}

// sharedOrders is the same list for all nodes with the same orders, once they hold what is to be
// delivered.
func sharedOrders(orders []v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
	var key strings.Builder
	for i := range orders {
		order := &orders[i]
		if order.Delivery == nil || order.Delivery.CarrierUID != "" || order.Next != nil {
			return orders // on its way to something else
		}
		key.WriteString(order.Namespace + "/" + order.Name + "=" + order.Delivery.ID + ",")
	}
	if len(orders) == 0 {
		return orders
	}
	known := orderLists.same(key.String(), func() []v1beta1.NodeModuleSpec { return orders })
	if !equality.Semantic.DeepEqual(known, orders) {
		return orders // in other respects, such as a pause, this node is alone
	}
	return known
}

// internLive shares what is reported with what is ordered: nearly always they are the same. Lists
// have their final place.
func internLive(config *v1beta1.NodeModulesConfig) {
	orders := make(map[[2]string]*v1beta1.NodeModuleSpec, len(config.Spec.Modules))
	for i := range config.Spec.Modules {
		order := &config.Spec.Modules[i]
		orders[[2]string{order.Namespace, order.Name}] = order
	}
	for i := range config.Status.Modules {
		live := &config.Status.Modules[i]
		internItem(&live.ModuleItem)
		share(&live.BootID)
		switch order := orders[[2]string{live.Namespace, live.Name}]; {
		case live.Config == nil:
		case order != nil && equality.Semantic.DeepEqual(live.Config, &order.Config):
			live.Config = &order.Config
		default:
			internConfig(live.Config)
		}
		o := live.Observed
		if o == nil {
			continue
		}
		share(&o.Delivery, &o.BuildID, &o.SrcVersion, &o.Taint)
		o.Parameters = nil // for people
		if o.LoadBegan != nil && o.LoadBegan.Equal(&live.LastTransitionTime) {
			o.LoadBegan = &live.LastTransitionTime
		}
	}
}

// fitted is the list without room for more.
func fitted[T any](list []T) []T {
	if cap(list) == len(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

func internItem(item *v1beta1.ModuleItem) {
	share(&item.Namespace, &item.Name, &item.ServiceAccountName, &item.Version)
}

func internConfig(c *v1beta1.ModuleConfig) {
	share(&c.KernelVersion, &c.ContainerImage, &c.InTreeModuleToRemove, (*string)(&c.ImagePullPolicy))
	share(&c.Modprobe.ModuleName, &c.Modprobe.DirName, &c.Modprobe.FirmwarePath, &c.Modprobe.ModprobedDir)
	for _, list := range []*[]string{&c.InTreeModulesToRemove, &c.Modprobe.Parameters, &c.Modprobe.ModulesLoadingOrder} {
		*list = sharedList(*list)
	}
}

func share(texts ...*string) {
	for _, text := range texts {
		*text = shared(*text)
	}
}

// shared is the one copy of a text. It goes when nobody holds it any more.
func shared(text string) string { return unique.Make(text).Value() }

var (
	labelSets  = pool[map[string]string]{most: 1024}
	lists      = pool[[]string]{most: 1024}
	deliveries = pool[*v1beta1.Delivery]{most: 8192}
	orderLists = pool[[]v1beta1.NodeModuleSpec]{most: 256}
)

// sharedLabels are the same map for all nodes with the same labels.
func sharedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return labels
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key.WriteString(name + "=" + labels[name] + ",") // neither can have these in it
	}
	return labelSets.same(key.String(), func() map[string]string { return internLabels(labels) })
}

func internLabels(labels map[string]string) map[string]string {
	texts := make(map[string]string, len(labels))
	for name, value := range labels {
		texts[shared(name)] = shared(value)
	}
	return texts
}

func sharedList(list []string) []string {
	if len(list) == 0 {
		return list
	}
	return lists.same(strings.Join(list, "\x00"), func() []string {
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = shared(list[i])
		}
		return texts
	})
}

// pool remembers the one copy of values that are the same.
type pool[T any] struct {
	// most bounds how many it remembers: more than fleets have kinds of nodes, or images. What it
	// forgets is kept twice at worst.
	most  int
	lock  sync.Mutex
	known map[string]T
}

// same is the value of that key, made if there is none.
func (p *pool[T]) same(key string, make func() T) T {
	p.lock.Lock()
	defer p.lock.Unlock()
	if value, ok := p.known[key]; ok {
		return value
	}
	if p.known == nil || len(p.known) >= p.most {
		p.known = map[string]T{}
	}
	value := make()
	p.known[key] = value
	return value
}
