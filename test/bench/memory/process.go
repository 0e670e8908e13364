// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/bench/measure"
)

// patience is how long the operator may take until it has told of all Modules.
const patience = 10 * time.Minute

// run has the operator's own process look at the fleet until nothing is left to do.
func (r *result) run(ctx context.Context, f *fleet.Fleet, say func(string, ...any)) error {
	rig, err := measure.New(f, r.Nodes, patience, say)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.Install(ctx); err != nil {
		return err
	}
	if err := r.awaitReady(ctx, rig); err != nil {
		return fmt.Errorf("wait until %d Modules are Ready on %d nodes: %w", r.Modules, r.Nodes, err)
	}
	r.ReadySeconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	writes, err := rig.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	r.count(writes)
	operator := f.Operator
	if err := f.StopOperator(); err != nil {
		return fmt.Errorf("stop the operator: %w", err)
	}
	r.OperatorRSSMiB, r.OperatorCPUSeconds = operator.MaxRSSMiB(), operator.CPUSeconds()
	say("the operator took %.0f MiB at most and %.1f s of a processor: %v", r.OperatorRSSMiB, r.OperatorCPUSeconds, audit.Count(writes))
	return nil
}

// awaitReady returns when the operator has told of each Module that it is ready on all nodes.
func (r *result) awaitReady(ctx context.Context, rig *measure.Rig) error {
	ctx, cancel := context.WithTimeout(ctx, rig.Timeout)
	defer cancel()
	ready := sets.New[string]()
	return measure.Follow(ctx, measure.Lister(rig.Watcher, &v1beta1.ModuleList{}), &v1beta1.Module{}, func(m *v1beta1.Module, _ bool) bool {
		if int(m.Status.ModuleLoader.AvailableNumber) == r.Nodes && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
			ready.Insert(m.Name)
		}
		return ready.Len() == r.Modules
	})
}

// count tells writes about nodes from those about Modules.
func (r *result) count(writes []audit.Request) {
	for _, w := range writes {
		switch kind, _, _ := strings.Cut(w.Resource(), "/"); kind {
		case "nodes", "nodemodulesconfigs", "pods":
			r.NodeWrites++
		default:
			r.ModuleWrites++
		}
	}
}
