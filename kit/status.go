// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drover-project/drover/internal/shared/kube"
)

const statusField = "status"

// blank is the object without a status.
func (r *Reconciler[O]) blank(o O) (O, error) {
	content, _, err := split(o)
	if err != nil {
		return o, err
	}
	seen := r.op.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, seen); err != nil {
		return o, fmt.Errorf("convert %T: %w", o, err)
	}
	return seen, nil
}

// report writes seen's status, if it has changed, and sends an event if a condition has. From the
// status before, it takes only the times of unchanged conditions.
func (r *Reconciler[O]) report(ctx context.Context, o, seen O, problem *Problem) error {
	before := *o.Conditions()
	conditions := seen.Conditions()
	for _, c := range conditionsOf(problem) {
		meta.SetStatusCondition(conditions, c)
	}
	now := metav1.NewTime(r.op.Clock.Now().Truncate(time.Second))
	for i := range *conditions {
		c := &(*conditions)[i]
		c.ObservedGeneration, c.LastTransitionTime = o.GetGeneration(), now
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	_, is, err := split(o)
	if err != nil {
		return err
	}
	_, want, err := split(seen)
	if err != nil || equality.Semantic.DeepEqual(is, want) {
		return err
	}
	if err := r.echoes.expect(o, want); err != nil {
		return err
	}
	if err := r.writeStatus(ctx, o, want); err != nil {
		return err
	}
	r.tell(o, before, *conditions)
	return nil
}

func conditionsOf(problem *Problem) []metav1.Condition {
	ready := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonReconciled, Message: "Everything exists and is ready",
	}
	errored := metav1.Condition{Type: ConditionErrored, Status: metav1.ConditionFalse, Reason: ReasonNoError}
	if problem != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, problem.Reason, problem.Message
		if problem.Errored {
			errored.Status, errored.Reason, errored.Message = metav1.ConditionTrue, problem.Reason, problem.Message
		}
	}
	return []metav1.Condition{ready, errored}
}

// writeStatus applies the status, unless the object has changed since it was read. It removes what
// others have put into the status.
func (r *Reconciler[O]) writeStatus(ctx context.Context, o O, want any) error {
	kind, err := apiutil.GVKForObject(o, r.client.Scheme())
	if err != nil {
		return fmt.Errorf("name the kind of %T: %w", o, err)
	}
	config := &unstructured.Unstructured{Object: map[string]any{statusField: want}}
	config.SetGroupVersionKind(kind)
	config.SetNamespace(o.GetNamespace())
	config.SetName(o.GetName())
	config.SetUID(o.GetUID())
	config.SetResourceVersion(o.GetResourceVersion())
	written := client.ApplyConfigurationFromUnstructured(config)
	if err := kube.ApplyStatus(ctx, r.client, client.FieldOwner(r.op.Name), written); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(config.Object[statusField], want) {
		return nil
	}
	clean := config.DeepCopy()
	clean.Object[statusField] = want
	if err := r.client.Status().Patch(ctx, clean, client.MergeFrom(config), client.FieldOwner(r.op.Name)); err != nil {
		return fmt.Errorf("clean the status of %s: %w", r.name(o), err)
	}
	return nil
}

// split is an object's JSON form without the status, and its status.
func split(o client.Object) (rest map[string]any, status any, err error) {
	rest, err = kube.Fields(o)
	if err != nil {
		return nil, nil, err
	}
	status, found := rest[statusField]
	if !found {
		status = map[string]any{}
	}
	delete(rest, statusField)
	return rest, status, nil
}

// tell sends one event for a change of both conditions: a warning if a person has to do something.
func (r *Reconciler[O]) tell(o O, before, after []metav1.Condition) {
	if r.events == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if meta.IsStatusConditionTrue(after, ConditionErrored) {
		kind = corev1.EventTypeWarning
	}
	told := map[string]bool{}
	for i := range after {
		c := &after[i]
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		reason, message := c.Reason, c.Message
		if c.Type == ConditionErrored { // Ready says it, too
			ready := meta.FindStatusCondition(after, ConditionReady)
			reason, message = ready.Reason, ready.Message
		}
		if !told[reason] {
			told[reason] = true
			r.events.Eventf(o, nil, kind, reason, "Reconcile", "%s", kube.Note(message))
		}
	}
}

// echoes remembers the status last written for each object, to tell our own writes from others'.
// Else each would cause another pass, and a message that differs each time, such as one with the
// port of a failed connection, would cause passes without end.
type echoes struct{ digests sync.Map }

// expect notes a status before it is written: its event may come before the write returns.
func (e *echoes) expect(o client.Object, status any) error {
	digest, err := kube.Hash(status)
	if err != nil {
		return err
	}
	e.digests.Store(client.ObjectKeyFromObject(o), digest)
	return nil
}

func (e *echoes) forget(key client.ObjectKey) { e.digests.Delete(key) }

// others drops updates that brought only the status that we wrote.
func (e *echoes) others() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(u event.UpdateEvent) bool { return !e.isEcho(u.ObjectOld, u.ObjectNew) }}
}

func (e *echoes) isEcho(before, after client.Object) bool {
	if before.GetResourceVersion() == after.GetResourceVersion() { // the cache's resync
		return false
	}
	was, _, err := split(before)
	if err != nil {
		return false
	}
	is, status, err := split(after)
	if err != nil {
		return false
	}
	digest, err := kube.Hash(status)
	if ours, known := e.digests.Load(client.ObjectKeyFromObject(after)); err != nil || !known || ours != digest {
		return false
	}
	for _, content := range []map[string]any{was, is} {
		unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
		unstructured.RemoveNestedField(content, "metadata", "managedFields")
	}
	return equality.Semantic.DeepEqual(was, is)
}
