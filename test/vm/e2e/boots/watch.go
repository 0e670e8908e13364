// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boots

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/e2e/loads"
)

// Phases in the order of a cold boot. Those of the kernel and of the agent are read on the node.
const (
	kernelStart  = "kernelStart"
	kubeletReady = "kubeletReady"
	ordered      = "ordered"
	carrierMade  = "carrierMade"
	agentMade    = "agentMade"  // the process that becomes the agent, while its container is made
	agentStart   = "agentStart" // its container has started, by the container runtime
	agentSpeaks  = "agentSpeaks"
	imagePulled  = "imagePulled"
	carrierRuns  = "carrierRuns"
	imported     = "imported"
	loaded       = "loaded"
	reported     = "reported"
	usable       = "usable"
)

var phases = []string{kernelStart, kubeletReady, ordered, carrierMade, agentMade, agentStart, agentSpeaks, imagePulled, carrierRuns,
	imported, loaded, reported, usable}

// witness notes when the API server says for the first time what a boot has come to.
type witness struct {
	node, before string // the node's name, and its boot before; empty: it is new
	done         chan struct{}

	mu       sync.Mutex
	seen     map[string]time.Time
	labelled bool
}

// watches begins a witness, which ends with ctx.
func (s *steps) watches(ctx context.Context, node, before string) (*witness, error) {
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		return nil, err
	}
	w := &witness{node: node, before: before, seen: map[string]time.Time{}, done: make(chan struct{})}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &v1beta1.NodeModulesConfigList{}, &corev1.PodList{}, &corev1.EventList{}} {
		events, err := c.Watch(ctx, list)
		if err != nil {
			return nil, err
		}
		go func() {
			for e := range events.ResultChan() {
				w.see(e.Type, e.Object)
			}
		}()
	}
	return w, nil
}

func (w *witness) see(kind watch.EventType, object runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Node:
		w.seeNode(o)
	case *v1beta1.NodeModulesConfig:
		w.seeConfig(o)
	case *corev1.Pod:
		if o.Namespace != loads.Restricted || o.Spec.NodeName != w.node || !strings.HasPrefix(o.Name, v1beta1.CarrierPrefix) ||
			kind == watch.Deleted {
			return
		}
		w.note(carrierMade, true)
		w.note(carrierRuns, o.Status.Phase == corev1.PodRunning)
	case *corev1.Event:
		_, made := w.seen[carrierMade] // one of an earlier boot comes before
		w.note(imagePulled, made && o.Reason == "Pulled" && strings.HasPrefix(o.InvolvedObject.Name, v1beta1.CarrierPrefix) &&
			strings.Contains(o.Message, repository))
	}
}

func (w *witness) seeNode(n *corev1.Node) {
	if n.Name != w.node {
		return
	}
	_, w.labelled = n.Labels[v1beta1.ReadyLabel(loads.Loader.Namespace, loads.Loader.Name)]
	for _, c := range n.Status.Conditions {
		w.note(kubeletReady, c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && n.Status.NodeInfo.BootID != w.before)
	}
	w.end()
}

func (w *witness) seeConfig(c *v1beta1.NodeModulesConfig) {
	if c.Name != w.node {
		return
	}
	w.note(ordered, len(c.Spec.Modules) > 0)
	for _, m := range c.Status.Modules {
		w.note(reported, m.Observed != nil && m.BootID != w.before)
	}
	w.end()
}

// end is when this boot's report is there, and the label with it.
func (w *witness) end() {
	if _, said := w.seen[reported]; said && w.labelled && w.note(usable, true) {
		close(w.done)
	}
}

// note tells whether this is the first time.
func (w *witness) note(phase string, happened bool) bool {
	if _, before := w.seen[phase]; before || !happened {
		return false
	}
	w.seen[phase] = time.Now()
	return true
}

// sightings are the times so far.
func (w *witness) sightings() map[string]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.seen)
}
