// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/shared/kube"
)

// outdatedDelay is when a pass with outdated reads is repeated, unless an event comes earlier.
const outdatedDelay = 200 * time.Millisecond

// errStep ends a pass that has written something: the watch of that brings the next pass.
var errStep = errors.New("a step was taken")

// Reconcile takes one step towards what the object asks for, or reports that none is left.
func (r *Reconciler[O]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o := r.op.New()
	err := r.client.Get(ctx, request.NamespacedName, o)
	if apierrors.IsNotFound(err) {
		r.echoes.forget(request.NamespacedName)
		if r.op.Forget != nil {
			r.op.Forget(request.NamespacedName)
		}
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("get %T: %w", o, err)
	}
	seen, err := r.blank(o)
	if err != nil {
		return reconcile.Result{}, err
	}
	if o.GetDeletionTimestamp().IsZero() {
		err = r.step(ctx, o, seen)
	} else {
		err = r.leave(ctx, o)
	}
	if errors.Is(err, errStep) {
		return reconcile.Result{}, nil
	}
	problem := ProblemOf(err)
	if err != nil && problem == nil {
		return reconcile.Result{RequeueAfter: outdatedDelay}, nil
	}
	return r.end(ctx, o, seen, problem)
}

// step takes one step, or finds that none is left. Observations go into seen's status.
func (r *Reconciler[O]) step(ctx context.Context, o, seen O) error {
	if r.op.Check != nil {
		if err := r.op.Check(ctx, copyOf(o)); err != nil {
			return missed(err)
		}
	}
	if r.op.Finalizer != "" && !controllerutil.ContainsFinalizer(o, r.op.Finalizer) {
		if err := kube.AddFinalizer(ctx, r.client, copyOf(o), r.op.Finalizer); err != nil {
			return err
		}
		return errStep
	}
	desired, err := r.op.Desired(copyOf(o))
	if err != nil {
		return missed(err)
	}
	children, err := r.children(ctx, o, desired)
	if err != nil {
		return err
	}
	if err := r.prune(ctx, o, children); err != nil {
		return err
	}
	if r.op.Observe == nil {
		return nil
	}
	return missed(r.op.Observe(ctx, seen, children))
}

// missed makes a problem of an object that the operator's code does not find. For the kit, such an
// object has just gone; but the operator's may never have existed, and its user has to know.
func missed(err error) error {
	if !apierrors.IsNotFound(err) || ProblemOf(err) != nil {
		return err
	}
	return &Problem{Reason: ReasonReconcileFailed, Message: err.Error(), Errored: true, cause: err}
}

// leave removes the children of an object that is being deleted, the last kind first, and then the
// finalizer. It asks the API server, as a cache may not show all of them yet.
func (r *Reconciler[O]) leave(ctx context.Context, o O) error {
	if r.op.Finalizer == "" || !controllerutil.ContainsFinalizer(o, r.op.Finalizer) {
		return errStep // the garbage collector does it
	}
	for i := len(r.op.Children) - 1; i >= 0; i-- {
		owned, err := r.owned(ctx, r.live, o, r.op.Children[i])
		if unserved(err) { // the CustomResourceDefinition was deleted, and all objects with it
			continue
		}
		if err != nil {
			return err
		}
		for _, child := range owned {
			if child.GetDeletionTimestamp().IsZero() {
				if err := kube.Delete(ctx, r.client, child); err != nil {
					return err
				}
				break
			}
		}
		if len(owned) > 0 {
			return Waiting(ReasonDeleting, "Waiting until %s is gone", r.name(owned[0]))
		}
	}
	if err := kube.RemoveFinalizer(ctx, r.client, copyOf(o), r.op.Finalizer); err != nil {
		return err
	}
	return errStep
}

// end reports, and says when to come again.
func (r *Reconciler[O]) end(ctx context.Context, o, seen O, problem *Problem) (reconcile.Result, error) {
	if r.op.Ended != nil {
		r.op.Ended(client.ObjectKeyFromObject(o), problem)
	}
	if err := r.report(ctx, o, seen, problem); err != nil {
		if ProblemOf(err) == nil {
			return reconcile.Result{RequeueAfter: outdatedDelay}, nil
		}
		return reconcile.Result{}, err
	}
	switch {
	case problem == nil:
		return reconcile.Result{}, nil
	case problem.Reason == ReasonReconcileFailed && problem.cause != nil:
		return reconcile.Result{}, problem.cause // with a growing delay
	}
	return reconcile.Result{RequeueAfter: problem.RetryAfter}, nil
}
