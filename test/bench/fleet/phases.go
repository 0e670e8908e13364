// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/bench/measure"
)

const (
	namespace  = "default"
	moduleName = "drover-sample"
	kernelName = "drover_sample"
	pluginName = moduleName + "-device-plugin"
	sampleFile = "config/samples/module_sample.yaml"

	// maxModuleWrites is what a Module may cost once, whatever the number of nodes: finalizer, status
	// while it moves, the plugin's DaemonSet and ServiceAccount, events of its conditions.
	maxModuleWrites = 60
)

var (
	moduleKey   = types.NamespacedName{Namespace: namespace, Name: moduleName}
	readyLabel  = v1beta1.ReadyLabel(namespace, moduleName)
	pluginLabel = v1beta1.DevicePluginReadyLabel(namespace, moduleName)
)

type bench struct {
	*measure.Rig
	// metrics is the operator's address for them.
	metrics string
	// recording is what the load sent.
	recording *measure.Recording
	result    result
}

func (b *bench) measure(ctx context.Context) error {
	phases := []func(context.Context) error{b.load, b.noop, b.cordon, b.restart, b.kernels, b.reports, b.clear, b.floor}
	if b.result.Modules > 1 {
		phases = []func(context.Context) error{b.several}
	}
	for _, phase := range phases {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// load applies the sample and measures until the last node's plugin is ready, and the Module.
func (b *bench) load(ctx context.Context) error {
	w, err := b.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "apply", "--server-side", "-f", sampleFile); err != nil {
		return err
	}
	if err := b.awaitLoad(ctx, w); err != nil {
		return fmt.Errorf("wait until %d nodes are ready: %w", b.Nodes, err)
	}
	var requests []audit.Request
	if b.result.Load, requests, err = w.End(); err != nil {
		return err
	}
	b.result.Seconds = b.result.Load.Seconds
	b.Say("device plugin ready on %d nodes and the Module Ready after %.1f s", b.Nodes, b.result.Seconds)
	writes, err := b.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	b.count(writes)
	if err := b.steps(requests, w); err != nil {
		return err
	}
	if b.recording, err = measure.Load(moduleKey).Record(writes); err != nil {
		return err
	}
	b.result.Carriers = b.result.Writes["create pods"]
	if b.result.PluginPodsReady, err = b.pluginPods(ctx); err != nil {
		return err
	}
	if b.result.EtcdMiB, err = b.EtcdMiB(ctx); err != nil {
		return err
	}
	b.result.EventWrites, err = b.foreignEvents(ctx)
	return err
}

// awaitLoad returns when each node has both labels and the Module is Ready. It watches, and asks
// for nothing again and again.
func (b *bench) awaitLoad(ctx context.Context, w *measure.Window) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	var nodes, module error
	var both sync.WaitGroup
	both.Go(func() { nodes = b.awaitLabels(ctx, w) })
	both.Go(func() {
		module = measure.Follow(ctx, measure.Lister(b.Watcher, &v1beta1.ModuleList{}), &v1beta1.Module{}, func(m *v1beta1.Module, _ bool) bool {
			return m.Name == moduleName && m.Status.ModuleLoader.AvailableNumber == int32(b.Nodes) &&
				meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
		})
	})
	both.Wait()
	return errors.Join(nodes, module)
}

// awaitLabels returns when each node has both labels. It tells of each tenth of a large fleet.
func (b *bench) awaitLabels(ctx context.Context, w *measure.Window) error {
	ready, plugin := sets.New[string](), sets.New[string]()
	tenth := max(b.Nodes/10, 100)
	next := tenth
	err := measure.Follow(ctx, measure.Lister(b.Watcher, metadataOf("NodeList")), &metav1.PartialObjectMetadata{},
		func(n *metav1.PartialObjectMetadata, _ bool) bool {
			note(ready, n, readyLabel)
			note(plugin, n, pluginLabel)
			if ready.Len() >= next && next < b.Nodes {
				b.Say("kernel module ready on %d of %d nodes", ready.Len(), b.Nodes)
				next += tenth
			}
			if ready.Len() == b.Nodes && b.result.ModuleReadySeconds == 0 {
				b.result.ModuleReadySeconds = measure.Seconds(w.Began)
				b.Say("kernel module ready on %d nodes after %.1f s", ready.Len(), b.result.ModuleReadySeconds)
			}
			return plugin.Len() == b.Nodes
		})
	if err != nil {
		return fmt.Errorf("the kernel module is ready on %d, the device plugin on %d of %d nodes: %w", ready.Len(), plugin.Len(), b.Nodes, err)
	}
	return nil
}

func note(with sets.Set[string], n client.Object, label string) {
	if _, ok := n.GetLabels()[label]; ok {
		with.Insert(n.GetName())
	} else {
		with.Delete(n.GetName())
	}
}

func metadataOf(kind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return list
}

// pluginPods counts the device plugin's pods that are ready.
func (b *bench) pluginPods(ctx context.Context) (int, error) {
	pods := &corev1.PodList{}
	if err := b.Admin.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("count the device plugin's pods: %w", err)
	}
	n := 0
	for i := range pods.Items {
		if measure.IsOf(&pods.Items[i], pluginName) && measure.Ready(&pods.Items[i]) {
			n++
		}
	}
	return n, nil
}

// foreignEvents counts Event objects of ours about anything but the Module, such as one per node.
func (b *bench) foreignEvents(ctx context.Context) (int, error) {
	var events eventsv1.EventList
	if err := b.Admin.List(ctx, &events); err != nil {
		return 0, fmt.Errorf("list events: %w", err)
	}
	n := 0
	for _, e := range events.Items {
		if strings.HasPrefix(e.ReportingController, "drover") && e.Regarding.Kind != "Module" {
			n++
		}
	}
	return n, nil
}

// noop touches the Module so that it is reconciled with nothing to do.
func (b *bench) noop(ctx context.Context) error {
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: moduleName}}
	touch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/touched":"yes"}}}`))
	if err := b.Admin.Patch(ctx, module, touch); err != nil {
		return fmt.Errorf("touch the Module: %w", err)
	}
	writes, err := b.UntilQuiet(ctx)
	b.result.NoopWrites = len(writes)
	b.Say("a reconcile with nothing to do: %d writes %v", len(writes), audit.Count(writes))
	return err
}

// cordon cordons one node and lets it go again.
func (b *bench) cordon(ctx context.Context) error {
	truth, err := b.Truth(ctx)
	if err != nil {
		return err
	}
	for _, verb := range []string{"cordon", "uncordon"} {
		if _, err := b.Kubectl(ctx, verb, truth[0].Name); err != nil {
			return err
		}
		writes, err := b.UntilQuiet(ctx)
		if err != nil {
			return err
		}
		b.result.CordonWrites += len(writes)
		b.Say("%s of one node: %d writes %v", verb, len(writes), audit.Count(writes))
	}
	return nil
}

// restart replaces the operator. The first one's costs are read when it has ended.
func (b *bench) restart(ctx context.Context) error {
	if err := b.stopOperator(); err != nil {
		return err
	}
	if err := b.StartOperator(ctx); err != nil {
		return err
	}
	if err := b.WaitOperator(ctx); err != nil {
		return err
	}
	writes, err := b.UntilQuiet(ctx)
	b.result.RestartWrites = len(writes)
	b.Say("a restart of the operator: %d writes %v", len(writes), audit.Count(writes))
	return err
}

// kernels asks the fake kernels whether anything was unloaded.
func (b *bench) kernels(ctx context.Context) error {
	truth, err := b.Truth(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("BREAK") == "unload" {
		if err := b.Debug(ctx, "/rmmod?node="+truth[0].Name+"&module="+kernelName); err != nil {
			return err
		}
		if truth, err = b.Truth(ctx); err != nil {
			return err
		}
	}
	missing := 0
	for _, n := range truth {
		b.result.UnaskedUnloads += n.Unloads + n.ByHand
		if !n.Has(kernelName) {
			missing++
		}
	}
	if missing > 0 && os.Getenv("BREAK") != "unload" {
		return fmt.Errorf("%d kernels do not hold %s although their nodes are labelled ready", missing, kernelName)
	}
	return nil
}
