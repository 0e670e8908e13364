// SPDX-License-Identifier: Apache-2.0

package main

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

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// An API server on a busy machine ends the watch of a client that reads too slowly. The bench takes
// a new one.
func TestTheFloorOutlivesItsWatches(t *testing.T) {
	// Given: plugin pods on six nodes, and watches that end after two events.
	const nodes = 6
	admin := env.Get(t).Admin(t)
	for i := range nodes {
		addPlugin(t, admin, fmt.Sprintf("floor-%d", i))
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

	// When: the floor labels the node of each ready plugin.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- labelPlugins(ctx, short, nodes) }()
	for i := range nodes {
		makeReady(t, admin, fmt.Sprintf("floor-%d", i))
	}

	// Then: all nodes are labelled, although more than one watch was needed.
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	labelled := &corev1.NodeList{}
	if err := admin.List(t.Context(), labelled, client.HasLabels{floorPlugin}); err != nil {
		t.Fatal(err)
	}
	if len(labelled.Items) != nodes || watches < 2 {
		t.Fatalf("%d of %d nodes are labelled, after %d watches", len(labelled.Items), nodes, watches)
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

// addPlugin makes a node and the floor's pod on it.
func addPlugin(t *testing.T, admin client.Client, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node, Labels: map[string]string{"app": "floor-plugin"}},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			Containers:                   []corev1.Container{{Name: "c", Image: "floor:1"}},
			AutomountServiceAccountToken: new(false),
		},
	}
	for _, o := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, pod} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
}

func makeReady(t *testing.T, admin client.Client, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	ready := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	if err := admin.Status().Patch(t.Context(), pod, ready); err != nil {
		t.Fatal(err)
	}
}
