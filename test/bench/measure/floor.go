// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// Floor is the least that a protocol takes on this machine. A bare client keeps the watches of the
// operator and of the agents, and sends each request as soon as they show that it is time. The
// kubelets, the DaemonSet controller and the scheduler are the same as in Drover's window. Operator
// and agents must have stopped.
type Floor struct {
	*Recording
	// Concurrency of the operator's requests.
	Concurrency int
	// Places are how many nodes a rollout lets be unavailable; 0: as many as there are.
	Places int
	// Plugin is the name of the device plugin's DaemonSet.
	Plugin string
	// Begin does what the window of Drover began with, and End what it ended with; nil: nothing.
	Begin, End func(context.Context) error
}

// Measure sends all that was recorded. The writes are its own.
func (f *Floor) Measure(ctx context.Context, rig *Rig) (took Use, writes []audit.Request, err error) {
	send := newSender(rig.AdminConfig)
	p := newReplay(f.Recording, send, f.Places)
	ctx, cancel := context.WithTimeout(ctx, rig.Timeout)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	p.agent = func(job func() error) { group.Go(job) }
	watching, stop := context.WithCancel(running)
	defer stop()
	if err := f.watch(watching, rig, p); err != nil {
		return took, nil, errors.Join(err, group.Wait())
	}
	if _, err := rig.Log.Next(); err != nil {
		return took, nil, err
	}
	w, err := rig.window()
	if err != nil {
		return took, nil, err
	}
	if f.Begin != nil {
		if err := f.Begin(ctx); err != nil {
			return took, nil, err
		}
	}
	if f.protocol.daemonSet {
		if _, err := send.again(ctx, f.daemonSet, f.daemonSet.Body); err != nil {
			return took, nil, err
		}
	}
	p.begin(running)
	for range f.Concurrency {
		group.Go(func() error { return p.work(running) })
	}
	err = group.Wait()
	if err == nil && f.End != nil {
		err = f.End(ctx)
	}
	if err != nil {
		return took, nil, fmt.Errorf("measure the floor: %w", err)
	}
	if took, _, err = w.End(); err != nil {
		return took, nil, err
	}
	stop()
	requests, err := rig.Log.Next()
	for _, r := range requests {
		if r.UserAgent == floorAgent && r.IsWrite() {
			writes = append(writes, r)
		}
	}
	return took, writes, err
}

// watch keeps the watches that the protocol takes: one of each node's agent, of its own order, and
// the operator's of nodes, pods and all reports.
func (f *Floor) watch(ctx context.Context, rig *Rig, p *replay) error {
	var watches errgroup.Group
	watches.SetLimit(f.Concurrency)
	for name := range p.all {
		own := Lister(rig.Watcher, &v1beta1.NodeModulesConfigList{}, client.MatchingFields{"metadata.name": name})
		watches.Go(func() error {
			return inform(ctx, own, &v1beta1.NodeModulesConfig{}, func(o *v1beta1.NodeModulesConfig, _ bool) {
				p.saw(ctx, name, func(n *node) { n.agentSaw = max(n.agentSaw, versionOf(o)) })
			})
		})
	}
	watches.Go(func() error {
		return inform(ctx, Lister(rig.Watcher, &v1beta1.NodeModulesConfigList{}), &v1beta1.NodeModulesConfig{},
			func(o *v1beta1.NodeModulesConfig, _ bool) {
				p.saw(ctx, o.Name, func(n *node) {
					n.operatorSaw = max(n.operatorSaw, versionOf(o))
					n.version, n.config = max(n.version, n.operatorSaw), o.UID
				})
			})
	})
	watches.Go(func() error {
		return inform(ctx, Lister(rig.Watcher, &corev1.PodList{}), &corev1.Pod{}, func(pod *corev1.Pod, deleted bool) {
			_, carrier := pod.Labels[v1beta1.CarrierLabel]
			p.saw(ctx, pod.Spec.NodeName, func(n *node) {
				switch {
				case carrier:
					n.runs[pod.UID] = running(pod)
				case f.isPlugin(pod):
					n.plugins[pod.UID], n.names[pod.UID] = Ready(pod) && !deleted, client.ObjectKeyFromObject(pod)
				}
			})
		})
	})
	watches.Go(func() error {
		return inform(ctx, Lister(rig.Watcher, &corev1.NodeList{}), &corev1.Node{}, func(*corev1.Node, bool) {})
	})
	return watches.Wait()
}

func (f *Floor) isPlugin(pod *corev1.Pod) bool { return IsOf(pod, f.Plugin) }

// IsOf says whether a pod belongs to a DaemonSet.
func IsOf(pod *corev1.Pod, daemonSet string) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == daemonSet
}

// versionOf is an object's resource version, which newer API servers promise to be a number (KEP
// 5504), and older ones' are.
func versionOf(o client.Object) uint64 {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
