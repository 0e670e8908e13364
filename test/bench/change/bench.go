// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/bench/measure"
)

var (
	readyLabel  = v1beta1.ReadyLabel(module.Namespace, module.Name)
	pluginLabel = v1beta1.DevicePluginReadyLabel(module.Namespace, module.Name)
)

// change is what is measured.
type change struct {
	protocol *measure.Protocol
	// begin is what somebody does, until is when it has come about. By Drover, or by the floor.
	begin, until func(*bench, context.Context) error
	// back undoes it, by Drover.
	back func(*bench, context.Context) error
	// places are how many nodes may be unavailable at a time; 0: all.
	places func(nodes int) int
	// floorBegins and floorEnds are what the operator does once.
	floorBegins, floorEnds func(*bench, context.Context) error
}

var changes = map[string]change{
	"upgrade": {
		protocol: measure.Upgrade(module),
		begin:    (*bench).upgrade, until: (*bench).everywhere, back: (*bench).downgrade,
		// As the rollout's default, a tenth.
		places:      func(nodes int) int { return max(1, nodes/10) },
		floorBegins: (*bench).upgrade,
	},
	"delete": {
		protocol: measure.Delete(module),
		begin:    (*bench).remove, until: (*bench).nowhere, back: (*bench).load,
		places:      func(int) int { return 0 },
		floorBegins: (*bench).removeWithPlugin, floorEnds: (*bench).release,
	},
}

type bench struct {
	*measure.Rig
	change
	// old are the device plugin's pods before the change.
	old    sets.Set[types.UID]
	result result
}

// measure has Drover bring the change about, and back, and then measures the floor.
func (b *bench) measure(ctx context.Context) error {
	if err := b.load(ctx); err != nil {
		return err
	}
	if err := b.drover(ctx); err != nil {
		return err
	}
	writes, err := b.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	b.count(writes)
	recording, err := b.protocol.Record(writes)
	if err != nil {
		return err
	}
	return b.floor(ctx, recording)
}

// drover measures the change by Drover.
func (b *bench) drover(ctx context.Context) error {
	before, err := b.unloads(ctx)
	if err != nil {
		return err
	}
	if err := b.look(ctx); err != nil {
		return err
	}
	w, err := b.Begin(ctx)
	if err != nil {
		return err
	}
	if err := b.begin(b, ctx); err != nil {
		return err
	}
	if err := b.within(ctx, b.until); err != nil {
		return err
	}
	if b.result.Use, _, err = w.End(); err != nil {
		return err
	}
	b.result.Seconds = b.result.Use.Seconds
	b.Say("%s: %.1f s", b.result.Change, b.result.Seconds)
	after, err := b.unloads(ctx)
	b.result.Unloads = after - before
	return err
}

// look notes the device plugin's pods that are there.
func (b *bench) look(ctx context.Context) error {
	var pods corev1.PodList
	if err := b.Admin.List(ctx, &pods, client.InNamespace(module.Namespace)); err != nil {
		return fmt.Errorf("list the device plugin's pods: %w", err)
	}
	b.old = sets.New[types.UID]()
	for i := range pods.Items {
		if measure.IsOf(&pods.Items[i], pluginName) {
			b.old.Insert(pods.Items[i].UID)
		}
	}
	return nil
}

func (b *bench) within(ctx context.Context, do func(*bench, context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	return do(b, ctx)
}

// floor has Drover take the change back, stops it, and sends what it sent.
func (b *bench) floor(ctx context.Context, recording *measure.Recording) error {
	if err := b.back(b, ctx); err != nil {
		return err
	}
	if err := b.StopAgents(ctx); err != nil {
		return err
	}
	if err := b.Settle(ctx); err != nil {
		return err
	}
	once := func(do func(*bench, context.Context) error) func(context.Context) error {
		if do == nil {
			return nil
		}
		return func(ctx context.Context) error { return do(b, ctx) }
	}
	f := &measure.Floor{
		Recording: recording, Concurrency: concurrency, Plugin: pluginName, Places: b.places(b.Nodes),
		Begin: once(b.floorBegins), End: once(b.floorEnds),
	}
	took, writes, err := f.Measure(ctx, b.Rig)
	if err != nil {
		return err
	}
	b.result.Floor, b.result.FloorSeconds, b.result.RatioToFloor = took, took.Seconds, b.result.Seconds/took.Seconds
	b.result.FloorWritesPerNode = float64(len(writes)) / float64(b.Nodes)
	b.Say("floor: %.1f s, %.2f writes per node %v", took.Seconds, b.result.FloorWritesPerNode, audit.Count(writes))
	return nil
}

// count sorts our writes into those of nodes, and those of the Module.
func (b *bench) count(writes []audit.Request) {
	b.result.Writes = audit.Count(writes)
	perNode := 0
	for _, w := range writes {
		switch w.ObjectRef.Resource {
		case "pods", "nodes", "nodemodulesconfigs":
			perNode++
		}
	}
	b.result.WritesPerNode, b.result.ModuleWrites = float64(perNode)/float64(b.Nodes), len(writes)-perNode
}

// unloads counts what all kernels have unloaded.
func (b *bench) unloads(ctx context.Context) (int, error) {
	truth, err := b.Truth(ctx)
	n := 0
	for i := range truth {
		n += truth[i].Unloads + truth[i].ByHand
	}
	return n, err
}

// load applies the Module, and waits until it is everywhere.
func (b *bench) load(ctx context.Context) error {
	if err := b.look(ctx); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "apply", "--server-side", "-f", sampleFile); err != nil {
		return err
	}
	return b.within(ctx, (*bench).everywhere)
}

func (b *bench) upgrade(ctx context.Context) error { return b.version(ctx, "1.0", "2.0") }

// downgrade waits until it is everywhere.
func (b *bench) downgrade(ctx context.Context) error {
	if err := b.look(ctx); err != nil {
		return err
	}
	if err := b.version(ctx, "2.0", "1.0"); err != nil {
		return err
	}
	return b.within(ctx, (*bench).everywhere)
}

// version changes the image of all mappings.
func (b *bench) version(ctx context.Context, from, to string) error {
	m := &v1beta1.Module{}
	if err := b.Admin.Get(ctx, module, m); err != nil {
		return fmt.Errorf("get the Module: %w", err)
	}
	before := m.DeepCopy()
	mappings := m.Spec.ModuleLoader.Container.KernelMappings
	for i := range mappings {
		mappings[i].ContainerImage = strings.Replace(mappings[i].ContainerImage, ":"+from, ":"+to, 1)
	}
	if err := b.Admin.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("change the Module's image: %w", err)
	}
	return nil
}

func (b *bench) remove(ctx context.Context) error {
	if err := b.Admin.Delete(ctx, &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: module.Namespace, Name: module.Name}}); err != nil {
		return fmt.Errorf("delete the Module: %w", err)
	}
	return nil
}

func (b *bench) removeWithPlugin(ctx context.Context) error {
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: module.Namespace, Name: pluginName}}
	return errors.Join(b.remove(ctx), b.Admin.Delete(ctx, daemonSet, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// release takes the Module's finalizer off, as the operator does when nothing is left.
func (b *bench) release(ctx context.Context) error {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: module.Namespace, Name: module.Name}}
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := b.Admin.Patch(ctx, m, free); err != nil {
		return fmt.Errorf("let the Module go: %w", err)
	}
	return nil
}

// everywhere returns when the Module's image is live on every node, and its device plugin is ready
// there, in a pod that was not there before, and labelled; and the Module is Ready.
func (b *bench) everywhere(ctx context.Context) error {
	m := &v1beta1.Module{}
	if err := b.Admin.Get(ctx, module, m); err != nil {
		return fmt.Errorf("get the Module: %w", err)
	}
	image, _, _ := strings.Cut(m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage, "-$")
	group, watching := errgroup.WithContext(ctx)
	group.Go(func() error {
		live := sets.New[string]()
		return measure.Follow(watching, measure.Lister(b.Watcher, &v1beta1.NodeModulesConfigList{}), &v1beta1.NodeModulesConfig{},
			func(c *v1beta1.NodeModulesConfig, _ bool) bool {
				if s := c.Status.Modules; len(s) == 1 && s[0].Config != nil && strings.HasPrefix(s[0].Config.ContainerImage, image) {
					live.Insert(c.Name)
				}
				return live.Len() == b.Nodes
			})
	})
	group.Go(func() error {
		ready := sets.New[string]()
		return measure.Follow(watching, measure.Lister(b.Watcher, &corev1.PodList{}), &corev1.Pod{}, func(pod *corev1.Pod, deleted bool) bool {
			if measure.IsOf(pod, pluginName) && measure.Ready(pod) && !deleted && !b.old.Has(pod.UID) {
				ready.Insert(pod.Spec.NodeName)
			}
			return ready.Len() == b.Nodes
		})
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("wait until %s is on every node: %w", image, err)
	}
	return b.labelled(ctx, b.Nodes, m.Generation)
}

// labelled returns when so many nodes have both labels, and the Module says Ready.
func (b *bench) labelled(ctx context.Context, nodes int, generation int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		both := sets.New[string]()
		return measure.Follow(ctx, measure.Lister(b.Watcher, &corev1.NodeList{}), &corev1.Node{}, func(n *corev1.Node, _ bool) bool {
			_, ready := n.Labels[readyLabel]
			_, plugin := n.Labels[pluginLabel]
			if ready && plugin {
				both.Insert(n.Name)
			} else {
				both.Delete(n.Name)
			}
			return both.Len() == nodes
		})
	})
	group.Go(func() error {
		return measure.Follow(ctx, measure.Lister(b.Watcher, &v1beta1.ModuleList{}), &v1beta1.Module{}, func(m *v1beta1.Module, _ bool) bool {
			ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
			return m.Status.ModuleLoader.AvailableNumber == int32(nodes) && ready != nil && ready.Status == metav1.ConditionTrue &&
				ready.ObservedGeneration == generation
		})
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("wait until %d nodes are labelled and the Module is Ready: %w", nodes, err)
	}
	return nil
}

// nowhere returns when nothing of the Module is left: no order, no label, no Module.
func (b *bench) nowhere(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return gone(ctx, b.Watcher, &v1beta1.NodeModulesConfigList{}, &v1beta1.NodeModulesConfig{}, each[*v1beta1.NodeModulesConfig])
	})
	group.Go(func() error {
		return gone(ctx, b.Watcher, &v1beta1.ModuleList{}, &v1beta1.Module{}, each[*v1beta1.Module])
	})
	group.Go(func() error {
		return gone(ctx, b.Watcher, &corev1.NodeList{}, &corev1.Node{}, func(n *corev1.Node) bool {
			_, ready := n.Labels[readyLabel]
			_, plugin := n.Labels[pluginLabel]
			return ready || plugin
		})
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("wait until nothing is left: %w", err)
	}
	return nil
}

func each[T client.Object](T) bool { return true }

// gone returns when no object of a kind is left that counts.
func gone[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, example T, counts func(T) bool) error {
	left := sets.New[string]()
	first := list.DeepCopyObject().(client.ObjectList) //nolint:errcheck // it is a copy of one
	if err := c.List(ctx, first); err != nil {
		return fmt.Errorf("list %T: %w", example, err)
	}
	err := meta.EachListItem(first, func(o runtime.Object) error {
		if t, ok := o.(T); ok && counts(t) {
			left.Insert(t.GetName())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read a list of %T: %w", example, err)
	}
	if left.Len() == 0 {
		return nil
	}
	return measure.Follow(ctx, measure.Lister(c, list), example, func(o T, deleted bool) bool {
		if deleted || !counts(o) {
			left.Delete(o.GetName())
		}
		return left.Len() == 0
	})
}
