// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
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

	// quiet is how long nothing may be written before a phase counts as over, and how long is watched
	// for writes that must not happen.
	quiet = 5 * time.Second
)

var (
	readyLabel  = v1beta1.ReadyLabel(namespace, moduleName)
	pluginLabel = v1beta1.DevicePluginReadyLabel(namespace, moduleName)
)

type bench struct {
	f       *fleet.Fleet
	log     *audit.Log
	nodes   int
	timeout time.Duration
	// metrics is the operator's address for them.
	metrics string
	// watcher is the bench's own client, which watches.
	watcher client.WithWatch
	// recording is what the load sent.
	recording *recording
	say       func(string, ...any)
	result    result
}

func (b *bench) measure(ctx context.Context) (err error) {
	if b.log, err = audit.Open(b.f.Cluster.AuditLog); err != nil {
		return err
	}
	config := rest.CopyConfig(b.f.AdminConfig)
	config.UserAgent = "bench"
	if b.watcher, err = client.NewWithWatch(config, client.Options{Scheme: b.f.Admin.Scheme()}); err != nil {
		return fmt.Errorf("connect the bench: %w", err)
	}
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
	w, err := b.begin(ctx)
	if err != nil {
		return err
	}
	if _, err := b.f.Kubectl(ctx, "apply", "--server-side", "-f", sampleFile); err != nil {
		return err
	}
	if err := b.awaitLoad(ctx, w); err != nil {
		return fmt.Errorf("wait until %d nodes are ready: %w", b.nodes, err)
	}
	var requests []audit.Request
	if b.result.Load, requests, err = w.end(); err != nil {
		return err
	}
	b.result.Seconds = b.result.Load.Seconds
	b.say("device plugin ready on %d nodes and the Module Ready after %.1f s", b.nodes, b.result.Seconds)
	writes, err := b.untilQuiet(ctx)
	if err != nil {
		return err
	}
	b.count(writes)
	if err := b.steps(requests, w); err != nil {
		return err
	}
	if b.recording, err = record(writes); err != nil {
		return err
	}
	b.result.Carriers = b.result.Writes["create pods"]
	if b.result.PluginPodsReady, err = b.pluginPods(ctx); err != nil {
		return err
	}
	if b.result.EtcdMiB, err = b.etcdMiB(ctx); err != nil {
		return err
	}
	b.result.EventWrites, err = b.foreignEvents(ctx)
	return err
}

// awaitLoad returns when each node has both labels and the Module is Ready. It watches, and asks
// for nothing again and again.
func (b *bench) awaitLoad(ctx context.Context, w *window) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		ready, plugin := sets.New[string](), sets.New[string]()
		return follow(ctx, lister(b.watcher, metadataOf("NodeList")), &metav1.PartialObjectMetadata{},
			func(n *metav1.PartialObjectMetadata, _ bool) bool {
				note(ready, n, readyLabel)
				note(plugin, n, pluginLabel)
				if ready.Len() == b.nodes && b.result.ModuleReadySeconds == 0 {
					b.result.ModuleReadySeconds = seconds(w.began)
					b.say("kernel module ready on %d nodes after %.1f s", ready.Len(), b.result.ModuleReadySeconds)
				}
				return plugin.Len() == b.nodes
			})
	})
	group.Go(func() error {
		return follow(ctx, lister(b.watcher, &v1beta1.ModuleList{}), &v1beta1.Module{}, func(m *v1beta1.Module, _ bool) bool {
			return m.Name == moduleName && m.Status.ModuleLoader.AvailableNumber == int32(b.nodes) &&
				meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
		})
	})
	return group.Wait()
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
	if err := b.f.Admin.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("count the device plugin's pods: %w", err)
	}
	n := 0
	for i := range pods.Items {
		if isPlugin(&pods.Items[i]) && podReady(&pods.Items[i]) {
			n++
		}
	}
	return n, nil
}

func isPlugin(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == pluginName
}

// settle returns when nobody has written anything for a while, but for signs of life.
func (b *bench) settle(ctx context.Context) error {
	log, err := audit.Open(b.f.Cluster.AuditLog)
	if err != nil {
		return err
	}
	last := time.Now()
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, b.timeout, false, func(context.Context) (bool, error) {
		requests, err := log.Next()
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(requests, func(r audit.Request) bool { return r.IsWrite() && r.Resource() != "nodes/status" }) {
			last = time.Now()
		}
		return time.Since(last) > quiet, nil
	})
	if err != nil {
		return fmt.Errorf("wait until nobody writes: %w", err)
	}
	return nil
}

// untilQuiet collects our writes until none has come for a while.
func (b *bench) untilQuiet(ctx context.Context) ([]audit.Request, error) {
	var writes []audit.Request
	last := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, false, func(context.Context) (bool, error) {
		requests, err := b.log.Next()
		if err != nil {
			return false, err
		}
		if more := audit.OurWrites(requests); len(more) > 0 {
			writes, last = append(writes, more...), time.Now()
		}
		return time.Since(last) > quiet, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until nothing is written any more: %w", err)
	}
	return writes, nil
}

// foreignEvents counts Event objects of ours about anything but the Module, such as one per node.
func (b *bench) foreignEvents(ctx context.Context) (int, error) {
	var events eventsv1.EventList
	if err := b.f.Admin.List(ctx, &events); err != nil {
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
	if err := b.f.Admin.Patch(ctx, module, touch); err != nil {
		return fmt.Errorf("touch the Module: %w", err)
	}
	writes, err := b.untilQuiet(ctx)
	b.result.NoopWrites = len(writes)
	b.say("a reconcile with nothing to do: %d writes %v", len(writes), audit.Count(writes))
	return err
}

// cordon cordons one node and lets it go again.
func (b *bench) cordon(ctx context.Context) error {
	truth, err := b.f.Truth(ctx)
	if err != nil {
		return err
	}
	for _, verb := range []string{"cordon", "uncordon"} {
		if _, err := b.f.Kubectl(ctx, verb, truth[0].Name); err != nil {
			return err
		}
		writes, err := b.untilQuiet(ctx)
		if err != nil {
			return err
		}
		b.result.CordonWrites += len(writes)
		b.say("%s of one node: %d writes %v", verb, len(writes), audit.Count(writes))
	}
	return nil
}

// restart replaces the operator. The first one's costs are read when it has ended.
func (b *bench) restart(ctx context.Context) error {
	if err := b.stopOperator(); err != nil {
		return err
	}
	if err := b.f.StartOperator(ctx); err != nil {
		return err
	}
	if err := b.f.WaitOperator(ctx); err != nil {
		return err
	}
	writes, err := b.untilQuiet(ctx)
	b.result.RestartWrites = len(writes)
	b.say("a restart of the operator: %d writes %v", len(writes), audit.Count(writes))
	return err
}

// kernels asks the fake kernels whether anything was unloaded.
func (b *bench) kernels(ctx context.Context) error {
	truth, err := b.f.Truth(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("BREAK") == "unload" {
		if err := b.f.Debug(ctx, "/rmmod?node="+truth[0].Name+"&module="+kernelName); err != nil {
			return err
		}
		if truth, err = b.f.Truth(ctx); err != nil {
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

func seconds(since time.Time) float64 {
	return time.Since(since).Round(10 * time.Millisecond).Seconds()
}
