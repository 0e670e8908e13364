// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/bench/measure"
)

// floor is the least that the load's protocol takes on this machine.
func (b *bench) floor(ctx context.Context) error {
	f := &measure.Floor{Recording: b.recording, Concurrency: concurrency, Plugin: pluginName}
	took, writes, err := f.Measure(ctx, b.Rig)
	if err != nil {
		return err
	}
	b.result.Floor, b.result.FloorSeconds = took, took.Seconds
	b.result.RatioToFloor = b.result.Seconds / took.Seconds
	b.result.FloorWritesPerNode = float64(len(writes)) / float64(b.Nodes)
	b.Say("floor: %.1f s, %.2f writes per node %v", b.result.FloorSeconds, b.result.FloorWritesPerNode, audit.Count(writes))
	b.result.FloorReactionP99Seconds, err = reactionOf(writes)
	return err
}

// clear takes back what the load made, for the floor to make it again: orders and reports, labels,
// the device plugin. The Module stays, since carriers and DaemonSet are its own.
func (b *bench) clear(ctx context.Context) error {
	if err := b.StopAgents(ctx); err != nil {
		return err
	}
	plugin := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pluginName}}
	if err := b.Admin.Delete(ctx, plugin); err != nil {
		return fmt.Errorf("make room for the floor: %w", err)
	}
	truth, err := b.Truth(ctx)
	if err != nil {
		return err
	}
	// One by one: an API server may give up a delete of all at once before it is through.
	unlabel := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:null}}}`, readyLabel, pluginLabel)))
	err = kube.Each(ctx, concurrency, truth, func(ctx context.Context, n fleet.NodeTruth) error {
		meta := metav1.ObjectMeta{Name: n.Name}
		return errors.Join(
			client.IgnoreNotFound(b.Admin.Delete(ctx, &v1beta1.NodeModulesConfig{ObjectMeta: meta})),
			b.Admin.Patch(ctx, &corev1.Node{ObjectMeta: meta}, unlabel))
	})
	if err != nil {
		return fmt.Errorf("make room for the floor: %w", err)
	}
	return b.Settle(ctx)
}
