// SPDX-License-Identifier: Apache-2.0

package startup

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=drover.dev,resources=modulepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// setupTeller registers the part that tells Modules that they may not name their taint.
func (c *Controller) setupTeller(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("startup-taint").
		For(&v1beta1.Module{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: kube.Backoff()})
	err := policies.Modules(b, c.client).Complete(kube.Traced("startup-taint", reconcile.Func(c.tell)))
	if err != nil {
		return fmt.Errorf("set up the controller of refused startup taints: %w", err)
	}
	return nil
}

// tell keeps in a Module's status whether it may name its startup taint.
func (c *Controller) tell(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	m := &v1beta1.Module{}
	if err := c.client.Get(ctx, request.NamespacedName, m); err != nil {
		return reconcile.Result{}, kube.UnlessGone("get Module", err)
	}
	denied, err := c.denied(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, problems.Report(ctx, c.client, m, v1beta1.ProblemStartupTaint, problems.Whole(denied))
}
