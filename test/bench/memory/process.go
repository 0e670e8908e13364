// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/devcluster"
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
	if r.QuietRSSMiB, err = operator.PeakMiB(); err != nil {
		return err
	}
	if err := r.outage(ctx, rig); err != nil {
		return fmt.Errorf("after the API server's restart: %w", err)
	}
	if r.OperatorRSSMiB, err = operator.PeakMiB(); err != nil {
		return err
	}
	if err := f.StopOperator(); err != nil {
		return fmt.Errorf("stop the operator: %w", err)
	}
	r.OperatorCPUSeconds = operator.CPUSeconds()
	say("the operator took %.0f MiB at most (%.0f before the API server's restart) and %.1f s of a processor: %v",
		r.OperatorRSSMiB, r.QuietRSSMiB, r.OperatorCPUSeconds, audit.Count(writes))
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

// outage restarts the API server. The operator's cache is filled anew, while it still holds what
// was there before. When the operator answers reports again, it has caught up.
func (r *result) outage(ctx context.Context, rig *measure.Rig) error {
	ctx, cancel := context.WithTimeout(ctx, rig.Timeout)
	defer cancel()
	began := time.Now()
	if err := rig.Cluster.StopComponent(ctx, devcluster.APIServer); err != nil {
		return err
	}
	if err := rig.Cluster.StartComponent(ctx, devcluster.APIServer); err != nil {
		return err
	}
	config := &v1beta1.NodeModulesConfig{}
	config.Name = nodeName(r.Nodes - 1)
	if err := rig.Admin.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
		return fmt.Errorf("get a report: %w", err)
	}
	whole := config.Status.DeepCopy()
	config.Status.Modules = config.Status.Modules[1:]
	if err := r.report(ctx, rig, config, false); err != nil {
		return fmt.Errorf("after a report without %s: %w", moduleName(0), err)
	}
	config.Status = *whole
	if err := r.report(ctx, rig, config, true); err != nil {
		return fmt.Errorf("after a report with %s: %w", moduleName(0), err)
	}
	r.OutageSeconds = measure.Seconds(began)
	writes, err := rig.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	rig.Say("the API server restarted, and after %.1f s the operator had answered two reports: %v", r.OutageSeconds, audit.Count(writes))
	r.count(writes)
	r.NodeWrites -= 2 // the label's removal and return
	return nil
}

// report plays a node's agent, and returns when the node's label says what it reported.
func (r *result) report(ctx context.Context, rig *measure.Rig, config *v1beta1.NodeModulesConfig, ready bool) error {
	if err := rig.Admin.Status().Update(ctx, config); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	only := client.MatchingFields{"metadata.name": config.Name}
	label := v1beta1.ReadyLabel(namespace, moduleName(0))
	err := measure.Follow(ctx, measure.Lister(rig.Watcher, &corev1.NodeList{}, only), &corev1.Node{}, func(n *corev1.Node, _ bool) bool {
		_, has := n.Labels[label]
		return has == ready
	})
	if err != nil {
		return fmt.Errorf("wait until %s has the label %s (%t): %w", config.Name, label, ready, err)
	}
	return nil
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
