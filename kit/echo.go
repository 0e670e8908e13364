// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drover-project/drover/internal/kube"
)

// echoes remembers the status that was written last for each object, to tell our own writes from others'. Without it each write of a status would be a
// reason for another pass: a message that differs each time, such as one with a port of a connection that failed, would make a pass without end of it,
// whatever delay was asked for.
type echoes struct{ digests sync.Map }

// expect notes what is about to be written: its event may come before the answer to the write.
func (e *echoes) expect(o client.Object, status any) error {
	digest, err := kube.Hash(status)
	if err != nil {
		return err
	}
	e.digests.Store(client.ObjectKeyFromObject(o), digest)
	return nil
}

func (e *echoes) forget(key client.ObjectKey) { e.digests.Delete(key) }

// others lets all events pass but updates that brought nothing but the status that we wrote.
func (e *echoes) others() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(u event.UpdateEvent) bool { return !e.isEcho(u.ObjectOld, u.ObjectNew) }}
}

func (e *echoes) isEcho(before, after client.Object) bool {
	if before.GetResourceVersion() == after.GetResourceVersion() { // nothing has changed: the cache wants everything to be looked at again
		return false
	}
	was, err := kube.Fields(before)
	if err != nil {
		return false
	}
	is, err := kube.Fields(after)
	if err != nil {
		return false
	}
	status, found := is[statusField]
	if !found {
		status = map[string]any{}
	}
	digest, err := kube.Hash(status)
	if ours, known := e.digests.Load(client.ObjectKeyFromObject(after)); err != nil || !known || ours != digest {
		return false
	}
	for _, content := range []map[string]any{was, is} {
		delete(content, statusField)
		unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
		unstructured.RemoveNestedField(content, "metadata", "managedFields")
	}
	return equality.Semantic.DeepEqual(was, is)
}
