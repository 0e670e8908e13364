// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// floor is the least that the protocol takes on this machine: the requests that Drover's components
// sent for each node, with their bodies and under their identities. A bare client keeps the watches
// of the operator and of the agents, and sends each request as soon as they show that it is time.
// The kubelets, the DaemonSet controller and the scheduler are the same. Operator and agents are
// stopped.
func (b *bench) floor(ctx context.Context) error {
	send := newSender(b.f.AdminConfig)
	p := newReplay(b.recording, send)
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	p.agent = func(job func() error) { group.Go(job) }
	watching, stop := context.WithCancel(running)
	defer stop()
	if err := b.watchFor(watching, p); err != nil {
		return errors.Join(err, group.Wait())
	}
	if _, err := b.log.Next(); err != nil {
		return err
	}
	w, err := b.window()
	if err != nil {
		return err
	}
	if _, err := send.again(ctx, b.recording.daemonSet, b.recording.daemonSet.Body); err != nil {
		return err
	}
	p.begin()
	for range concurrency {
		group.Go(func() error { return p.work(running) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("measure the floor: %w", err)
	}
	if b.result.Floor, _, err = w.end(); err != nil {
		return err
	}
	b.result.FloorSeconds = b.result.Floor.Seconds
	b.result.RatioToFloor = b.result.Seconds / b.result.FloorSeconds
	stop()
	return b.countFloor()
}

func (b *bench) countFloor() error {
	requests, err := b.log.Next()
	if err != nil {
		return err
	}
	var writes []audit.Request
	for _, r := range requests {
		if r.UserAgent == floorAgent && r.IsWrite() {
			writes = append(writes, r)
		}
	}
	b.result.FloorWritesPerNode = float64(len(writes)) / float64(b.nodes)
	b.say("floor: %.1f s, %.2f writes per node %v", b.result.FloorSeconds, b.result.FloorWritesPerNode, audit.Count(writes))
	return nil
}

// watchFor keeps the watches that the protocol takes: one of each node's agent, of its own order,
// and the operator's of nodes, pods and all reports.
func (b *bench) watchFor(ctx context.Context, p *replay) error {
	var watches errgroup.Group
	watches.SetLimit(concurrency)
	for node := range p.nodes {
		own := lister(b.watcher, &v1beta1.NodeModulesConfigList{}, client.MatchingFields{"metadata.name": node})
		watches.Go(func() error {
			return inform(ctx, own, &v1beta1.NodeModulesConfig{}, func(o *v1beta1.NodeModulesConfig) {
				p.saw(ctx, node, func(n *progress) { n.ordered = len(o.Spec.Modules) > 0 })
			})
		})
	}
	watches.Go(func() error {
		return inform(ctx, lister(b.watcher, &v1beta1.NodeModulesConfigList{}), &v1beta1.NodeModulesConfig{}, func(o *v1beta1.NodeModulesConfig) {
			p.saw(ctx, o.Name, func(n *progress) { n.reported = len(o.Status.Modules) > 0 })
		})
	})
	watches.Go(func() error {
		return inform(ctx, lister(b.watcher, &corev1.PodList{}), &corev1.Pod{}, func(pod *corev1.Pod) {
			_, carrier := pod.Labels[v1beta1.CarrierLabel]
			p.saw(ctx, pod.Spec.NodeName, func(n *progress) {
				n.running = n.running || carrier && running(pod)
				n.plugged = n.plugged || isPlugin(pod) && podReady(pod)
			})
		})
	})
	watches.Go(func() error {
		return inform(ctx, lister(b.watcher, &corev1.NodeList{}), &corev1.Node{}, func(*corev1.Node) {})
	})
	return watches.Wait()
}

// clear takes back what the load made, for the floor to make it again: orders and reports, labels,
// the device plugin. The Module stays, since carriers and DaemonSet are its own.
func (b *bench) clear(ctx context.Context) error {
	truth, err := b.f.Truth(ctx)
	if err != nil {
		return err
	}
	for _, n := range truth {
		if err := b.f.Debug(ctx, "/agent-off?node="+n.Name); err != nil {
			return err
		}
	}
	if err := b.f.StopOperator(); err != nil {
		return err
	}
	err = errors.Join(
		b.f.Admin.Delete(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pluginName}}),
		b.f.Admin.DeleteAllOf(ctx, &v1beta1.NodeModulesConfig{}))
	if err != nil {
		return fmt.Errorf("make room for the floor: %w", err)
	}
	unlabel := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:null}}}`, readyLabel, pluginLabel)))
	for _, n := range truth {
		if err := b.f.Admin.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, unlabel); err != nil {
			return fmt.Errorf("make room for the floor: %w", err)
		}
	}
	return b.settle(ctx)
}
