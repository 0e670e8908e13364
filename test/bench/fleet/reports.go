// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/bench/measure"
)

// maxPassesPerReport is what one node's report may cost, in passes of the controller that gives
// orders: one, of the Module that it is about.
const maxPassesPerReport = 1.05

// passesSeries counts those passes.
const passesSeries = `controller_runtime_reconcile_total{controller="module",`

// mostReports is how many nodes report: more would say nothing else, and take as long as a load.
const mostReports = 500

// reports has one node after the other report something new of the Module: somebody removes the
// kernel module, and the agent, which loads it again, says when. The next node's turn comes when
// that is written, so that passes of several reports can hardly be one.
func (b *bench) reports(ctx context.Context) error {
	if _, err := b.Log.Next(); err != nil {
		return err
	}
	truth, err := b.Truth(ctx)
	if err != nil {
		return err
	}
	truth = truth[:min(len(truth), mostReports)]
	before, err := b.passes(ctx)
	if err != nil {
		return err
	}
	for _, n := range truth {
		if err := b.report(ctx, n.Name); err != nil {
			return err
		}
	}
	writes, err := b.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	after, err := b.passes(ctx)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if w.Resource() == "nodemodulesconfigs/status" {
			b.result.Reports++
		}
	}
	if b.result.Reports < len(truth) {
		return fmt.Errorf("%d reports of %d nodes", b.result.Reports, len(truth))
	}
	b.result.PassesPerReport = (after - before) / float64(b.result.Reports)
	b.Say("%d reports, one after the other: %.0f passes, %.3f for each", b.result.Reports, after-before, b.result.PassesPerReport)
	return nil
}

// report returns when the node has said that its kernel module is live again.
func (b *bench) report(ctx context.Context, node string) error {
	before, err := b.repairs(ctx, node)
	if err != nil {
		return err
	}
	if err := b.Debug(ctx, "/rmmod?node="+node+"&module="+kernelName); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := b.repairs(ctx, node)
		return now > before, err
	})
	if err != nil {
		return fmt.Errorf("wait until node %s reports: %w", node, err)
	}
	return nil
}

// repairs is how often the node has reported a repair of the kernel module.
func (b *bench) repairs(ctx context.Context, node string) (int32, error) {
	config := &v1beta1.NodeModulesConfig{}
	if err := b.Admin.Get(ctx, client.ObjectKey{Name: node}, config); err != nil {
		return 0, fmt.Errorf("get what node %s reports: %w", node, err)
	}
	for i := range config.Status.Modules {
		if m := &config.Status.Modules[i]; m.Name == moduleName && m.Observed != nil {
			return m.Observed.Repairs, nil
		}
	}
	return 0, nil
}

// passes reads the operator's own count of the module controller's passes.
func (b *bench) passes(ctx context.Context) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/metrics", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask for the operator's metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for the operator's metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	sum, err := measure.SumOf(response.Body, passesSeries)
	if err != nil {
		return 0, fmt.Errorf("read the operator's metrics: %w", err)
	}
	return sum, nil
}
