// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// otherWatches of NodeModulesConfigs are the operator's and our own; each agent has one.
const otherWatches = 2

var carrierLabel = client.HasLabels{v1beta1.CarrierLabel}

// gap is the least time between two looks, however much happens.
const gap = 200 * time.Millisecond

// watch keeps a cache of what the API says, and tells s.changed of everything that changes there or
// in a kernel.
func (s *scene) watch(ctx context.Context) error {
	carriers, err := labels.NewRequirement(v1beta1.CarrierLabel, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("watch carriers: %w", err)
	}
	s.cache, err = cache.New(s.f.AdminConfig, cache.Options{
		Scheme: s.f.Admin.Scheme(), Mapper: s.f.Admin.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: labels.NewSelector().Add(*carriers)}},
	})
	if err != nil {
		return fmt.Errorf("watch the API: %w", err)
	}
	life := &metav1.PartialObjectMetadata{} // a node's sign of life is a hint to look, too
	life.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	for _, o := range []client.Object{&v1beta1.Module{}, &v1beta1.NodeModulesConfig{}, &corev1.Node{}, &corev1.Pod{}, life} {
		informer, err := s.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch the API: %w", err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { s.wake() }, UpdateFunc: func(_, _ any) { s.wake() }, DeleteFunc: func(any) { s.wake() },
		}); err != nil {
			return fmt.Errorf("watch the API: %w", err)
		}
	}
	s.background.Go(func() error { return s.cache.Start(ctx) })
	s.background.Go(func() error { return s.f.KernelChanges(ctx, s.wake) })
	if !s.cache.WaitForCacheSync(ctx) {
		return errors.New("the watch of the API did not begin")
	}
	return nil
}

func (s *scene) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// until looks, whenever something changes, whether anything is missing, and returns when nothing
// is. It gives up when its patience is over.
func (s *scene) until(ctx context.Context, what string, missing func(context.Context) (string, error)) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.o.patience)
	defer cancel()
	said := begin
	for {
		last, err := missing(ctx)
		if err == nil && last == "" {
			s.result.SlowestCalmSeconds = max(s.result.SlowestCalmSeconds, seconds(time.Since(begin)))
			return nil
		}
		if err != nil {
			last = err.Error()
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			s.say("still waiting until %s: %s", what, last)
		}
		if pause(ctx, gap) == nil {
			select {
			case <-ctx.Done():
			case <-s.changed:
				continue
			}
		}
		return fmt.Errorf("wait until %s: %w: %s", what, context.Cause(ctx), last)
	}
}

// well says what is missing until all is as it is wanted, see wellBy. The cache may be late after
// an outage, so the API server has the last word. Whoever lost its watch then must have it again:
// it would not hear of anything new.
func (s *scene) well(ctx context.Context) (string, error) {
	if missing, err := s.twice(ctx, s.wellBy); missing != "" || err != nil {
		return missing, err
	}
	watches, err := s.watches(ctx)
	if least := float64(s.o.nodes + otherWatches); err != nil || watches < least {
		return fmt.Sprintf("%.0f watches of NodeModulesConfigs, want %.0f", watches, least), err
	}
	return "", nil
}

// gone says what is left after all Modules were deleted.
func (s *scene) gone(ctx context.Context) (string, error) { return s.twice(ctx, s.goneBy) }

func (s *scene) twice(ctx context.Context, missing func(context.Context, client.Reader) (string, error)) (string, error) {
	if is, err := missing(ctx, s.cache); is != "" || err != nil {
		return is, err
	}
	return missing(ctx, s.f.Admin)
}

// wellBy says what is missing until each kernel holds what its node is to have and nothing else,
// each node is Ready and labelled accordingly, each Module is Ready, and no carrier is left.
func (s *scene) wellBy(ctx context.Context, api client.Reader) (string, error) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	var nodes corev1.NodeList
	if err := api.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	byName := map[string]*corev1.Node{}
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for _, m := range s.world.modules {
		if missing, err := s.modulesWell(ctx, api, m); missing != "" || err != nil {
			return missing, err
		}
	}
	for _, n := range s.world.nodes {
		if missing := s.nodeWell(n, byName[n.name]); missing != "" {
			return missing, nil
		}
	}
	truth, err := s.f.Truth(ctx)
	if err != nil {
		return "", err
	}
	for i := range truth {
		if missing := s.kernelWell(s.world.nodes[i], truth[i], byName[truth[i].Name]); missing != "" {
			return missing, nil
		}
	}
	var carriers corev1.PodList
	if err := api.List(ctx, &carriers, carrierLabel, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list carriers: %w", err)
	}
	if n := len(carriers.Items); n > 0 {
		return fmt.Sprintf("%d carriers are left, %s among them", n, carriers.Items[0].Name), nil
	}
	return "", nil
}

func (s *scene) modulesWell(ctx context.Context, api client.Reader, m *wantedModule) (string, error) {
	object := &v1beta1.Module{}
	if err := api.Get(ctx, m.key(), object, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("get Module %s: %w", m.name(), err)
	}
	ready := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionReady)
	if object.Generation < m.generation || ready == nil || ready.Status != metav1.ConditionTrue ||
		ready.ObservedGeneration != object.Generation {
		return fmt.Sprintf("Module %s is at generation %d of %d and says %+v", m.name(), object.Generation, m.generation, ready), nil
	}
	return "", nil
}

// nodeWell looks at what the API says of a node.
func (s *scene) nodeWell(n *wantedNode, object *corev1.Node) string {
	if object == nil || !placement.Ready(object) {
		return fmt.Sprintf("node %s is not Ready", n.name)
	}
	for k, v := range n.labels {
		if object.Labels[k] != v {
			return fmt.Sprintf("node %s has %s=%s", n.name, k, object.Labels[k])
		}
	}
	for _, m := range s.world.modules {
		if _, ready := object.Labels[v1beta1.ReadyLabel(namespace, m.name())]; ready != m.selects(n) {
			return fmt.Sprintf("node %s is labelled ready for %s: %t, wanted: %t", n.name, m.name(), ready, m.selects(n))
		}
	}
	return ""
}

// kernelWell looks at what a kernel holds.
func (s *scene) kernelWell(n *wantedNode, truth fleet.NodeTruth, object *corev1.Node) string {
	if info := object.Status.NodeInfo; info.BootID != truth.BootID || info.KernelVersion != truth.Kernel {
		return fmt.Sprintf("the API knows an earlier boot of node %s", n.name)
	}
	loaded := map[string]fleet.LoadedModule{}
	for _, m := range truth.Loaded {
		loaded[m.Name] = m
	}
	for _, m := range s.world.modules {
		id, value := m.build(truth.Kernel)
		got, holds := loaded[m.name()]
		if holds != m.selects(n) {
			return fmt.Sprintf("the kernel of %s holds %s: %t, wanted: %t", n.name, m.name(), holds, m.selects(n))
		}
		if holds && (got.BuildID != id || got.Params[parameter] != value) {
			return fmt.Sprintf("the kernel of %s holds %s with %s=%s, wanted: version %d with %s", n.name, m.name(), parameter,
				got.Params[parameter], m.version, value)
		}
	}
	return ""
}

func (s *scene) goneBy(ctx context.Context, api client.Reader) (string, error) {
	var modules v1beta1.ModuleList
	var configs v1beta1.NodeModulesConfigList
	var carriers corev1.PodList
	if err := api.List(ctx, &carriers, carrierLabel); err != nil {
		return "", fmt.Errorf("list what is left: %w", err)
	}
	for _, list := range []client.ObjectList{&modules, &configs} {
		if err := api.List(ctx, list); err != nil {
			return "", fmt.Errorf("list what is left: %w", err)
		}
	}
	for _, list := range []client.ObjectList{&modules, &configs, &carriers} {
		if n := meta.LenList(list); n > 0 {
			return strconv.Itoa(n) + fmt.Sprintf(" objects are left in a %T", list), nil
		}
	}
	var nodes corev1.NodeList
	if err := api.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, m := range s.world.modules {
			if _, left := nodes.Items[i].Labels[v1beta1.ReadyLabel(namespace, m.name())]; left {
				return fmt.Sprintf("node %s is labelled for %s", nodes.Items[i].Name, m.name()), nil
			}
		}
	}
	truth, err := s.f.Truth(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range truth {
		if len(n.Loaded) > 0 {
			return fmt.Sprintf("the kernel of %s holds %s", n.Name, n.Loaded[0].Name), nil
		}
	}
	return "", nil
}
