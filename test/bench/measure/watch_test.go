// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/internal/testkit/env"
)

const seenLabel = "example.com/seen"

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// An API server on a busy machine ends the watch of a client that reads too slowly. The bench takes
// a new one.
func TestWatchesGoOn(t *testing.T) {
	// Given: watches that end after two changes.
	const nodes = 6
	admin := env.Get(t).Admin(t)
	for i := range nodes {
		addNode(t, admin, fmt.Sprintf("watched-%d", i))
	}
	watches := 0
	short := interceptor.NewClient(admin, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, opts...)
			if err != nil {
				return nil, err
			}
			watches++
			return cut(w, 2), nil
		},
	})

	// When: six nodes change while they are watched.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended, shown, there, seen := make(chan error, 1), make(chan struct{}), map[string]bool{}, map[string]bool{}
	go func() {
		ended <- Follow(ctx, Lister(short, nodeList()), &metav1.PartialObjectMetadata{},
			func(n *metav1.PartialObjectMetadata, _ bool) bool {
				if !there[n.Name] {
					if there[n.Name] = true; len(there) == nodes {
						close(shown)
					}
				}
				if _, ok := n.Labels[seenLabel]; ok {
					seen[n.Name] = true
				}
				return len(seen) == nodes
			})
	}()
	select {
	case <-shown:
	case err := <-ended:
		t.Fatal(err)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, seenLabel)))
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("watched-%d", i)}}
		if err := admin.Patch(t.Context(), n, label); err != nil {
			t.Fatal(err)
		}
	}

	// Then: all changes are seen.
	if err := <-ended; err != nil {
		t.Fatalf("%d of %d changes were seen: %v", len(seen), nodes, err)
	}
	if watches < 2 {
		t.Error("no watch ended")
	}
}

// cut ends a watch after so many changes.
func cut(w watch.Interface, after int) watch.Interface {
	seen := 0
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Modified {
			seen++
		}
		if seen == after {
			w.Stop()
		}
		return e, true
	})
}

func addNode(t *testing.T, admin client.Client, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), n) })
}

func nodeList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}
