// SPDX-License-Identifier: Apache-2.0

// Package kit is what an operator for devices stands on: it makes a Module, and what else is
// needed, of a custom resource. The author writes an [Operator]: what the children are, and when
// they are ready. The kit does the rest.
//
//   - It writes one child per pass, by server-side apply, restores what others change or
//     delete, and removes what is no longer wanted. It never touches others' objects.
//   - It sets two conditions, Ready and Errored, and sends an event when one changes. Status is an
//     observation: nothing is decided from an earlier one.
//   - It keeps an object with a finalizer until its children are gone.
//   - [Main] is a whole program: flags, logs, probes, metrics with authorization, leader election.
//
// [NewModule] builds a Module, [ModuleReady] tells whether one is ready, [Overlap] whose nodes are
// whose, [Once] makes something outside of the cluster happen exactly once, [Requires] finds an
// outdated CustomResourceDefinition, and [NewGauge] makes metrics. Package labels has Drover's
// labels on nodes, and package kittest runs an operator in a test against a real cluster.
package kit

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-project/drover/internal/shared/kube"
)

// Object is an operator's custom resource: a pointer to a type whose status has conditions.
type Object interface {
	client.Object
	// Conditions is a pointer into the status.
	Conditions() *[]metav1.Condition
}

// Operator says what one kind of custom resource becomes.
type Operator[O Object] struct {
	// Name of the controller, of the field manager, and of the source of events. Required.
	Name string
	// New makes an empty object. Required.
	New func() O
	// Children are the children's kinds, as empty objects. The kit watches them and deletes those that
	// belong to the object and are not desired. When the object is deleted, the last kind goes first.
	Children []client.Object
	// Check, if set, refuses objects before anything is written: its error, by [Refused] or [Waiting],
	// ends as a condition, and all children stay as they are.
	Check func(ctx context.Context, o O) error
	// Desired are the wanted children, in the order in which they are made. It is a pure function of
	// the object. The kit sets an empty namespace and the owner reference. It writes only fields that
	// are set, and leaves the others to others. Required.
	Desired func(o O) ([]client.Object, error)
	// Explain, if set, returns an API server's refusal of a child with a reason of the operator's own,
	// or nil to leave it to the kit.
	Explain func(ctx context.Context, o O, child client.Object, refusal error) error
	// Observe, if set, is called when all children are as desired, with what was read, in the order of
	// Desired. It may fill the object's status, which is empty, and returns nil if the object is
	// ready, or why it is not: [Waiting], [Refused], [ModuleReady].
	Observe func(ctx context.Context, o O, children []client.Object) error
	// Finalizer, if set, such as "example.com/modules", keeps the object until its children are gone.
	// Without it, the garbage collector removes them afterwards.
	Finalizer string
	// Watch, if set, adds watches of what Check and Observe read. Options that it sets replace the
	// kit's, whose RateLimiter has an object wait for a minute at most after a pass that failed.
	Watch func(mgr ctrl.Manager, b *builder.Builder) *builder.Builder
	// Ended, if set, is called with what a pass found out, nil if the object is ready. For metrics.
	Ended func(key types.NamespacedName, problem *Problem)
	// Forget, if set, is called when an object is gone. For metrics.
	Forget func(key types.NamespacedName)
	// Clock is the real one unless set.
	Clock clock.PassiveClock
}

// Reconciler brings one object's children and status up to date, a step at a time.
type Reconciler[O Object] struct {
	client client.Client
	live   client.Reader
	events events.EventRecorder
	op     Operator[O]
	echoes echoes
}

// NewReconciler makes a reconciler without a manager, as for a test. c may read from a cache; live
// reads from the API server. recorder may be nil: then there are no events.
func NewReconciler[O Object](c client.Client, live client.Reader, recorder events.EventRecorder, op Operator[O]) *Reconciler[O] {
	if op.Clock == nil {
		op.Clock = clock.RealClock{}
	}
	return &Reconciler[O]{client: c, live: live, events: recorder, op: op}
}

// Add registers the operator with a manager, whose scheme must have all of its kinds.
func Add[O Object](mgr ctrl.Manager, op Operator[O]) error {
	r := NewReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(op.Name), op)
	b := ctrl.NewControllerManagedBy(mgr).Named(op.Name).For(op.New(), builder.WithPredicates(r.echoes.others())).
		WithOptions(controller.Options{RateLimiter: kube.Backoff()})
	for _, child := range op.Children {
		b = b.Owns(child)
	}
	if op.Watch != nil {
		b = op.Watch(mgr, b)
	}
	if err := b.Complete(kube.Traced(op.Name, r)); err != nil {
		return fmt.Errorf("set up %s: %w", op.Name, err)
	}
	return nil
}
