// SPDX-License-Identifier: Apache-2.0

package memetcd

import (
	"context"
	"errors"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// keyValues is what the storage asks by etcd's own client: the keys alone, for its estimate of
// sizes, and lists in chunks, which etcd servers before 3.7 do not have either.
type keyValues struct{ s *Store }

var errUnused = errors.New("memetcd: no kube-apiserver asks this of etcd")

func (k keyValues) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	start, end := string(op.KeyBytes()), string(op.RangeBytes())
	if end == "" {
		end = start + "\x00"
	}
	all, err := k.s.scan(start, end, op.Rev(), op.Limit())
	if err != nil {
		return nil, err
	}
	answer := &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: all.Revision}, Count: all.Count,
		More: all.Count > int64(len(all.Kvs))}
	for _, pair := range all.Kvs {
		if op.IsKeysOnly() {
			pair = &mvccpb.KeyValue{Key: pair.Key, CreateRevision: pair.CreateRevision, ModRevision: pair.ModRevision, Version: pair.Version}
		}
		answer.Kvs = append(answer.Kvs, pair)
	}
	return answer, nil
}

func (keyValues) GetStream(context.Context, string, ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return nil, status.Error(codes.Unimplemented, "memetcd: no lists in chunks")
}

func (keyValues) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, errUnused
}

func (keyValues) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return nil, errUnused
}

func (keyValues) Compact(context.Context, int64, ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, errUnused
}

func (keyValues) Do(context.Context, clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, errUnused
}

func (keyValues) Txn(context.Context) clientv3.Txn { panic(errUnused) }

// watcher tells of writes.
type watcher struct{ s *Store }

func (w watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, options...)
	answers := make(chan clientv3.WatchResponse)
	go w.tell(ctx, op, answers)
	return answers
}

// tell sends the writes from a revision on until the context is done.
func (w watcher) tell(ctx context.Context, op clientv3.Op, answers chan<- clientv3.WatchResponse) {
	defer close(answers)
	key, told := string(op.KeyBytes()), op.Rev()-1
	if told < 0 {
		told = w.s.Revision()
	}
	answered := 0
	for {
		w.s.mu.Lock()
		all, err := w.s.since(told)
		changed, newest, compacted := w.s.changed, w.s.revision, w.s.compacted
		progress := op.IsProgressNotify() && w.s.asked > answered
		answered = w.s.asked
		w.s.mu.Unlock()
		answer := clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: newest}}
		if err != nil {
			answer.CompactRevision, answer.Canceled = compacted, true
		}
		for i := range all {
			if all[i].Key == key || op.IsOptsWithPrefix() && strings.HasPrefix(all[i].Key, key) {
				answer.Events = append(answer.Events, all[i].event())
			}
		}
		told = max(told, newest)
		if len(answer.Events) > 0 || progress || err != nil {
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Change) event() *clientv3.Event {
	if c.now == nil {
		return &clientv3.Event{Type: clientv3.EventTypeDelete, PrevKv: c.before,
			Kv: &mvccpb.KeyValue{Key: []byte(c.Key), ModRevision: c.Revision}}
	}
	return &clientv3.Event{Type: clientv3.EventTypePut, PrevKv: c.before, Kv: c.now}
}

// RequestProgress has each watch tell up to which revision it has told all.
func (w watcher) RequestProgress(context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.asked++
	close(w.s.changed)
	w.s.changed = make(chan struct{})
	return nil
}

func (watcher) Close() error { return nil }

// leases never end: an Event outlives what one process keeps in memory.
type leases struct{ clientv3.Lease }

func (leases) Grant(_ context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 1, TTL: seconds}, nil
}

func (leases) Close() error { return nil }
