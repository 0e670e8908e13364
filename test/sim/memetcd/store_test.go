// SPDX-License-Identifier: Apache-2.0

package memetcd

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// put writes a value over what there is, and returns the store's revision.
func put(t *testing.T, s *Store, key, value string) int64 {
	t.Helper()
	now, err := s.Get(t.Context(), key, kubernetes.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.OptimisticPut(t.Context(), key, []byte(value), now.KV.GetModRevision(), kubernetes.PutOptions{})
	if err != nil || !done.Succeeded {
		t.Fatalf("put %s: %v %v", key, done, err)
	}
	return done.Revision
}

func list(t *testing.T, s *Store, o kubernetes.ListOptions) string {
	t.Helper()
	answer, err := s.List(t.Context(), "/a/", o)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprint(answer.Count, ":")
	for _, pair := range answer.Kvs {
		text += fmt.Sprintf(" %s=%s@%d", pair.Key, pair.Value, pair.ModRevision)
	}
	return text
}

func TestListAtARevision(t *testing.T) {
	s := New()
	put(t, s, "/a/x", "1")                                                              // 2
	put(t, s, "/a/y", "1")                                                              // 3
	put(t, s, "/a/x", "2")                                                              // 4
	put(t, s, "/b/x", "1")                                                              // 5
	done, err := s.OptimisticDelete(t.Context(), "/a/y", 3, kubernetes.DeleteOptions{}) // 6
	if err != nil || !done.Succeeded || done.Revision != 6 {
		t.Fatal(done, err)
	}
	for _, test := range []struct {
		given kubernetes.ListOptions
		then  string
	}{
		{kubernetes.ListOptions{}, "1: /a/x=2@4"},
		{kubernetes.ListOptions{Revision: 5}, "2: /a/x=2@4 /a/y=1@3"},
		{kubernetes.ListOptions{Revision: 3}, "2: /a/x=1@2 /a/y=1@3"},
		{kubernetes.ListOptions{Revision: 2}, "1: /a/x=1@2"},
		{kubernetes.ListOptions{Revision: 5, Limit: 1}, "2: /a/x=2@4"},
		{kubernetes.ListOptions{Revision: 5, Continue: "/a/x\x00"}, "1: /a/y=1@3"},
		{kubernetes.ListOptions{Revision: 7}, rpctypes.ErrFutureRev.Error()},
	} {
		if got := list(t, s, test.given); got != test.then {
			t.Errorf("%+v: %s, want %s", test.given, got, test.then)
		}
	}
	s.Compact(4)
	if got := list(t, s, kubernetes.ListOptions{Revision: 3}); got != rpctypes.ErrCompacted.Error() {
		t.Errorf("a revision that is compacted: %s", got)
	}
	if got := list(t, s, kubernetes.ListOptions{Revision: 5}); got != "2: /a/x=2@4 /a/y=1@3" {
		t.Errorf("after compaction, at a later revision: %s", got)
	}
}

func TestOptimism(t *testing.T) {
	s := New()
	put(t, s, "/a/x", "1")
	for _, expected := range []int64{0, 1, 3} {
		done, err := s.OptimisticPut(t.Context(), "/a/x", []byte("2"), expected, kubernetes.PutOptions{GetOnFailure: true})
		if err != nil || done.Succeeded || string(done.KV.Value) != "1" || done.Revision != 2 {
			t.Errorf("a put that expects %d: %+v %v", expected, done, err)
		}
		gone, err := s.OptimisticDelete(t.Context(), "/a/x", expected, kubernetes.DeleteOptions{GetOnFailure: true})
		if err != nil || gone.Succeeded || string(gone.KV.Value) != "1" {
			t.Errorf("a delete that expects %d: %+v %v", expected, gone, err)
		}
	}
	put(t, s, "/a/x", "2")
	now, err := s.Get(t.Context(), "/a/x", kubernetes.GetOptions{})
	if err != nil || now.KV.CreateRevision != 2 || now.KV.ModRevision != 3 || now.KV.Version != 2 {
		t.Errorf("after a second put: %+v %v", now.KV, err)
	}
}

func TestWatch(t *testing.T) {
	s := New()
	client := s.Client(t.Context())
	put(t, s, "/a/x", "1")
	all := client.Watch(t.Context(), "/a/", clientv3.WithPrefix(), clientv3.WithRev(2), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	read := func() (text string) {
		answer := <-all
		for _, e := range answer.Events {
			text += fmt.Sprintf("%s %s=%s created=%t before=%s;", e.Type, e.Kv.Key, e.Kv.Value, e.IsCreate(), e.PrevKv.GetValue())
		}
		if answer.IsProgressNotify() {
			text += fmt.Sprint("progress ", answer.Header.Revision)
		}
		return text
	}
	if got := read(); got != "PUT /a/x=1 created=true before=;" {
		t.Error(got)
	}
	put(t, s, "/b/x", "1")
	put(t, s, "/a/x", "2")
	if got := read(); got != "PUT /a/x=2 created=false before=1;" {
		t.Error(got)
	}
	s.Delete(func(key string) bool { return key == "/a/x" })
	if got := read(); got != "DELETE /a/x= created=false before=2;" {
		t.Error(got)
	}
	if err := client.RequestProgress(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "progress 5" {
		t.Error(got)
	}
	s.Compact(4)
	if late := <-client.Watch(t.Context(), "/a/", clientv3.WithPrefix(), clientv3.WithRev(3)); !errors.Is(late.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from a revision that is compacted: %v", late.Err())
	}
}

func TestSince(t *testing.T) {
	s := New()
	put(t, s, "/a/x", "1")
	put(t, s, "/b/x", "1")
	put(t, s, "/a/x", "2")
	changes, err := s.Since(2, "/a/")
	if err != nil || len(changes) != 1 || string(changes[0].Value) != "2" || string(changes[0].Before()) != "1" || changes[0].Created {
		t.Errorf("%+v %v", changes, err)
	}
	all, revision := s.All("/")
	if len(all) != 2 || revision != 4 || all[0].Revision != 4 || all[1].Key != "/b/x" {
		t.Errorf("%+v at %d", all, revision)
	}
	s.Compact(3)
	if _, err := s.Since(2, "/"); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("changes that are forgotten: %v", err)
	}
}
