// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drover-project/drover/internal/shared/kube"
)

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
