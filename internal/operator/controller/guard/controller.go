// SPDX-License-Identifier: Apache-2.0

// Package guard closes the gate while a write could do harm: while KMM's operator runs, and while
// the cluster's CustomResourceDefinitions are not ours.
//
// Reads: KMM's Lease, its pod and the pod's rights, our CustomResourceDefinitions. Writes nothing.
package guard

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// interval is the longest time between two looks at KMM's Lease.
const interval = time.Minute

// Controller keeps the gate.
type Controller struct {
	live  client.Client
	gate  *gate.Gate
	clock clock.PassiveClock
	seen  map[string]sight // KMM's Leases by namespace. Only one look is taken at a time.
}

// New makes the controller. live has no cache. A nil clock is the time of day.
func New(live client.Client, g *gate.Gate, now clock.PassiveClock) *Controller {
	if now == nil {
		now = clock.RealClock{}
	}
	return &Controller{live: live, gate: g, clock: now}
}

// SetupWithManager registers the controller in every process, the leader or not: a new leader must
// know at once.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(definition.Kind)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("guard").
		Watches(crd, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if !slices.Contains(definition.Names, o.GetName()) {
				return nil
			}
			return []reconcile.Request{{}}
		})).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false), RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("guard", c))
	if err != nil {
		return fmt.Errorf("set up the guard: %w", err)
	}
	return nil
}

// Reconcile checks all of it.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	again, err := c.Check(ctx)
	return reconcile.Result{RequeueAfter: again}, err
}

// Check sets the gate and says when to look again. Call it once before any controller starts.
func (c *Controller) Check(ctx context.Context) (time.Duration, error) {
	problem, again, err := c.Peer(ctx)
	if err != nil {
		return 0, err
	}
	if problem == nil {
		if problem, err = c.definitions(ctx); err != nil {
			return 0, err
		}
	}
	if before := c.gate.Closed(); (before == nil) != (problem == nil) {
		if problem != nil {
			log.FromContext(ctx).Info("Read-only from now on", "reason", problem.Reason, "message", problem.Message)
		} else {
			log.FromContext(ctx).Info("No longer read-only", "reason", before.Reason)
		}
	}
	c.gate.Set(problem)
	return min(again, interval), nil
}

// definitions is about CRDs that others installed, not about missing ones.
func (c *Controller) definitions(ctx context.Context) (*reasons.Problem, error) {
	var faults []string
	for _, name := range definition.Names {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(definition.Kind)
		switch err := c.live.Get(ctx, client.ObjectKey{Name: name}, crd); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
		case crd.GetDeletionTimestamp() != nil:
			continue
		}
		if lacks := definition.Misfit(crd); lacks != "" {
			faults = append(faults, name+": "+lacks)
		}
	}
	if len(faults) == 0 {
		return nil, nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonCRDIncompatible, Message: definition.Problem(faults...)}, nil
}
