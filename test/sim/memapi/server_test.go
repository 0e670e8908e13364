// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// start starts a server with our custom resources.
func start(t testing.TB, o Options) (*Server, dynamic.Interface) {
	t.Helper()
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := s.Install(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(s.Config(Admin()))
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

var modules = schema.GroupVersionResource{Group: "kmm.sigs.x-k8s.io", Version: "v1beta1", Resource: "modules"}

func module(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module",
		"metadata": map[string]any{"name": "nic", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{"a": fmt.Sprint(i)}, "moduleLoader": map[string]any{"container": map[string]any{
			"modprobe":       map[string]any{"moduleName": "nic"},
			"kernelMappings": []any{map[string]any{"regexp": "^.+$", "containerImage": "a/b:c"}}}}}}}
}

func apply(ctx context.Context, client dynamic.Interface, i int) error {
	_, err := client.Resource(modules).Namespace("default").Apply(ctx, "nic", module(i), metav1.ApplyOptions{FieldManager: "a"})
	return err
}

func TestAWatchTellsEachWrite(t *testing.T) {
	for _, cached := range []bool{false, true} {
		_, client := start(t, Options{WatchCache: cached})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, err := client.Resource(modules).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const n = 50
		for i := range n {
			if err := apply(ctx, client, i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			e, ok := <-w.ResultChan()
			if !ok {
				t.Fatalf("the watch ended after %d of %d events", i, n)
			}
			u, _ := e.Object.(*unstructured.Unstructured)
			selector, _, _ := unstructured.NestedString(u.Object, "spec", "selector", "a")
			if selector != fmt.Sprint(i) || u.GetGeneration() != int64(i+1) {
				t.Fatalf("event %d is %s of %s, generation %d", i, e.Type, selector, u.GetGeneration())
			}
		}
		w.Stop()
		for range w.ResultChan() { // what is under way; then it ends
			continue
		}
	}
}

// TestTime: what the server notes is of the clock that it was given, also in what it answers.
func TestTime(t *testing.T) {
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	_, client := start(t, Options{Now: func() time.Time { return now }})
	space := client.Resource(modules).Namespace("default")
	given := module(1)
	given.SetFinalizers([]string{"drover.dev/test"})
	created, err := space.Create(t.Context(), given, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if err := space.Delete(t.Context(), "nic", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving, err := space.Get(t.Context(), "nic", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{created.GetCreationTimestamp().UTC().Format(time.RFC3339), created.GetManagedFields()[0].Time.UTC().Format(time.RFC3339),
		leaving.GetCreationTimestamp().UTC().Format(time.RFC3339), leaving.GetDeletionTimestamp().UTC().Format(time.RFC3339)}
	want := []string{"2001-02-03T04:05:06Z", "2001-02-03T04:05:06Z", "2001-02-03T04:05:06Z", "2001-02-03T05:05:06Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEtcdIsReadable: who knows the prefix finds each object as JSON.
func TestEtcdIsReadable(t *testing.T) {
	s, client := start(t, Options{})
	if _, err := client.Resource(modules).Namespace("default").Create(t.Context(), module(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		resource schema.GroupResource
		key      string
	}{
		{modules.GroupResource(), "default/nic"},
		{schema.GroupResource{Resource: "namespaces"}, "kube-system"},
		{schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, "system-node-critical"},
	} {
		prefix, found := s.Prefix(test.resource), false
		all, _ := s.Etcd().All(prefix)
		for i := range all {
			found = found || all[i].Key == prefix+test.key && all[i].Value[0] == '{'
		}
		if !found {
			t.Errorf("%s: no %s as JSON below %s", test.resource, test.key, prefix)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	_, client := start(b, Options{})
	for _, same := range []bool{true, false} {
		b.Run(fmt.Sprintf("same=%t", same), func(b *testing.B) {
			i := 0
			for b.Loop() {
				if !same {
					i++
				}
				if err := apply(b.Context(), client, i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
