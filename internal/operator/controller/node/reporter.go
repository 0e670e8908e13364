// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	applyv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/pace"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

// The pace of statuses: a burst costs a handful of writes whatever the number of nodes, with a
// second between two of them for each 500 nodes.
const (
	statusFirst = time.Second
	statusMost  = 10 * time.Second
	statusNode  = 2 * time.Millisecond
)

// reporter keeps Module.status.
type reporter struct {
	Options
	client  client.Client
	refused *refusals
	desired desired.Memory
	told    told
	pace    *pace.Pace

	progress progress
}

// Reconcile makes one Module's status right, with at most one write, and tells of conditions that
// changed.
func (r *reporter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	module := &v1beta1.Module{}
	if err := r.client.Get(ctx, request.NamespacedName, module); err != nil {
		if err = kube.UnlessGone("get Module", err); err == nil {
			r.forget(request.NamespacedName)
		}
		return reconcile.Result{}, err
	}
	facts, err := r.observe(ctx, module)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{RequeueAfter: r.due(module, facts)}
	r.Metrics.Set(module, status.Count(facts))
	before := module.Status
	before.Problems = nil // what others found is theirs to write
	after := status.Carry(before, status.Compute(facts), metav1.NewTime(r.Now()))
	r.pace.Passed(request.NamespacedName, int(after.ModuleLoader.NodesMatchingSelectorNumber), r.Now())
	if equality.Semantic.DeepEqual(before, after) {
		return result, nil
	}
	if rest := r.progress.rest(request.NamespacedName, &before, &after, r.Now()); rest > 0 {
		return reconcile.Result{RequeueAfter: min(cmp.Or(result.RequeueAfter, rest), rest)}, nil
	}
	if err := r.write(ctx, module, &after); err != nil {
		if p := r.Gate.Closed(); p != nil && p.Reason == v1beta1.ReasonCRDIncompatible {
			err = r.unsaid(ctx, module, &after, p)
		}
		return result, kube.UnlessGone("write status", err)
	}
	r.progress.wrote(request.NamespacedName, r.Now())
	r.told.forget(request.NamespacedName)
	r.Recorder.Changed(module, before.Conditions, status.Told(after.Conditions))
	return result, nil
}

// due is until time alone changes a status; 0: it does not.
func (r *reporter) due(module *v1beta1.Module, facts *status.Module) time.Duration {
	if p := facts.Rollout; p != nil {
		again := time.Duration(0)
		if !p.Again.IsZero() {
			again = max(p.Again.Sub(r.Now()), time.Millisecond)
		}
		if len(p.Crowded) > 0 { // no event of this Module tells when another one leaves a node
			again = min(cmp.Or(again, statusMost), statusMost)
		}
		if again > 0 {
			return again
		}
	}
	if leaving(module) {
		return max(r.answerDue(module), 0)
	}
	return 0
}

// forget drops what is known of a Module that is gone.
func (r *reporter) forget(module types.NamespacedName) {
	r.desired.Forget(module)
	r.told.forget(module)
	r.Seen.Forget(module)
	r.pace.Forget(module)
	r.progress.forget(module)
	r.Metrics.Forget(module)
}

// unsaid is for a definition of Modules without conditions: an event says, once, what they would,
// and the numbers are still written.
func (r *reporter) unsaid(ctx context.Context, module *v1beta1.Module, after *v1beta1.ModuleStatus, p *reasons.Problem) error {
	if r.told.first(client.ObjectKeyFromObject(module), p) {
		r.Recorder.Warn(module, p.Reason, v1beta1.ConditionReady, p.Message)
	}
	numbers := v1beta1.ModuleStatus{ModuleLoader: after.ModuleLoader, DevicePlugin: after.DevicePlugin, DRA: after.DRA}
	if equality.Semantic.DeepEqual(module.Status, numbers) {
		return nil
	}
	return r.write(ctx, module, &numbers)
}

func (r *reporter) write(ctx context.Context, module *v1beta1.Module, after *v1beta1.ModuleStatus) error {
	config, err := kube.Convert[applyv1beta1.ModuleStatusApplyConfiguration](after)
	if err != nil {
		return fmt.Errorf("convert the status: %w", err)
	}
	for counts, of := range map[*v1beta1.DaemonSetStatus]**applyv1beta1.DaemonSetStatusApplyConfiguration{
		&after.ModuleLoader: &config.ModuleLoader, &after.DevicePlugin: &config.DevicePlugin, &after.DRA: &config.DRA,
	} {
		// Zeros are written out: taking away all fields of an object by apply leaves null, which the
		// schema refuses.
		*of = applyv1beta1.DaemonSetStatus().WithNodesMatchingSelectorNumber(counts.NodesMatchingSelectorNumber).
			WithDesiredNumber(counts.DesiredNumber).WithAvailableNumber(counts.AvailableNumber)
	}
	// The UID keeps this from speaking about a namesake that came after.
	apply := applyv1beta1.Module(module.Name, module.Namespace).WithUID(module.UID).WithStatus(config)
	if err := kube.ApplyStatus(ctx, r.client, kube.OwnerStatus, apply); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// told is what events have said about Modules, because no condition can be written. A new
// process says it again.
type told struct {
	problems sync.Map // of types.NamespacedName to reasons.Problem
}

// first reports whether this has not been said about a Module.
func (t *told) first(module types.NamespacedName, p *reasons.Problem) bool {
	before, ok := t.problems.Swap(module, *p)
	return !ok || before != any(*p)
}

func (t *told) forget(module types.NamespacedName) { t.problems.Delete(module) }
