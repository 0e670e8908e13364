// SPDX-License-Identifier: Apache-2.0

// Package kit is what an operator for devices stands on: a custom resource says what somebody wants, and becomes a Module and whatever else belongs
// to it. The author writes what is particular to the device, [Operator]: what the children are, and when they are ready. The kit does the rest.
//
//   - One child is written per pass, by server-side apply; what somebody changes or deletes is put right; what is no longer wanted is removed.
//     Objects that belong to somebody else are never touched.
//   - Two conditions, Ready and Errored, say what is the matter; an event is sent when one of them changes. Status is an observation: it is computed
//     from the world each time, and what stood there before decides nothing.
//   - An object with a finalizer goes when its children are gone.
//   - [Main] is a whole program: flags, logs, probes, metrics behind the API server's own authorization, leader election.
//
// [NewModule] builds a Module, [ModuleReady] says whether one is ready, [Overlap] whose nodes are whose, [Once] makes something outside of the
// cluster happen exactly once, [Requires] finds an outdated CustomResourceDefinition, and [NewGauge] makes metrics that go with their object.
// Package labels names the labels that Drover puts on nodes, and package kittest runs an operator against a real cluster in a test.
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
)

// Object is a custom resource of an operator: a pointer to a type whose status has conditions.
type Object interface {
	client.Object
	// Conditions is where the conditions are: a pointer into the status.
	Conditions() *[]metav1.Condition
}

// Operator says what one kind of custom resource becomes.
type Operator[O Object] struct {
	// Name of the controller, of the writer of all fields ("field manager"), and of the source of events. Required.
	Name string
	// New makes an empty object. Required.
	New func() O
	// Children are the kinds that the children may be of, as empty objects. They are watched. One that belongs to the object and is not desired
	// any more is deleted. When the object is deleted, the last kind goes first. Required, if there are any.
	Children []client.Object
	// Check, if set, refuses objects before anything is written: its error ends as a condition, and all children stay as they are. [Refused] and
	// [Waiting] make errors for it.
	Check func(ctx context.Context, o O) error
	// Desired are the children that should be there, in the order in which they are made. It is a pure function of the object. The namespace, where
	// it is empty, and the owner reference are set by the kit. Only fields that are set are written, and fields that are not set are left to others.
	// Required.
	Desired func(o O) ([]client.Object, error)
	// Explain, if set, is given the API server's refusal of a child, and returns it with a reason of the operator's own, or nil to leave it to the kit.
	Explain func(ctx context.Context, o O, child client.Object, refusal error) error
	// Observe, if set, is called when all children are there and as they should be. children are what was read, in the order of Desired. It may fill
	// the object's status, which is empty, and returns nil if the object is ready, or why it is not: [Waiting], [Refused], [ModuleReady].
	Observe func(ctx context.Context, o O, children []client.Object) error
	// Finalizer, if set, keeps the object until its children are gone, in this name, such as "example.com/modules". Without it, the cluster's garbage
	// collector removes them afterwards.
	Finalizer string
	// Watch, if set, adds watches: those of what Check and Observe read.
	Watch func(mgr ctrl.Manager, b *builder.Builder) *builder.Builder
	// Ended, if set, is told how each pass ended that found something out: nil if the object is ready. For metrics.
	Ended func(key types.NamespacedName, problem *Problem)
	// Forget, if set, is told when an object is gone. For metrics.
	Forget func(key types.NamespacedName)
	// Clock is the time of day unless set.
	Clock clock.PassiveClock
}

// Reconciler makes one object's children and status what they should be, a step at a time.
type Reconciler[O Object] struct {
	client client.Client
	live   client.Reader
	events events.EventRecorder
	op     Operator[O]
	echoes echoes
}

// NewReconciler makes a reconciler without a manager, such as for a test. c may read from a cache; live reads from the API server. recorder may be
// nil: then there are no events.
func NewReconciler[O Object](c client.Client, live client.Reader, recorder events.EventRecorder, op Operator[O]) *Reconciler[O] {
	if op.Clock == nil {
		op.Clock = clock.RealClock{}
	}
	return &Reconciler[O]{client: c, live: live, events: recorder, op: op}
}

// Add registers the operator with a manager. Its scheme must know the object's kind and its children's.
func Add[O Object](mgr ctrl.Manager, op Operator[O]) error {
	r := NewReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(op.Name), op)
	b := ctrl.NewControllerManagedBy(mgr).Named(op.Name).For(op.New(), builder.WithPredicates(r.echoes.others()))
	for _, child := range op.Children {
		b = b.Owns(child)
	}
	if op.Watch != nil {
		b = op.Watch(mgr, b)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up %s: %w", op.Name, err)
	}
	return nil
}
