// SPDX-License-Identifier: Apache-2.0

// Package memetcd keeps keys, values and their history in memory, as etcd keeps them for a
// kube-apiserver: what k8s.io/apiserver's etcd3 storage asks of its client is answered here.
//
// Meaning of revisions and key-value pairs: https://etcd.io/docs/v3.6/learning/api/.
package memetcd

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// Change is one write: a key has a new value, or none.
type Change struct {
	// Revision is the store's revision after the write. Every write has one of its own.
	Revision int64
	Key      string
	// Value is nil where the key was deleted.
	Value []byte
	// Created is true where the key had no value before.
	Created bool

	now, before *mvccpb.KeyValue
}

// Before is the value that the key had before; nil: none.
func (c *Change) Before() []byte { return c.before.GetValue() }

// Store is an etcd in memory. All methods may be called at the same time; no caller changes what
// they return.
type Store struct {
	mu       sync.Mutex
	revision int64
	keys     []string // sorted
	pairs    map[string]*mvccpb.KeyValue
	log      []Change // the newest last; gapless from compacted+1 on
	// compacted is the newest revision that can no longer be read.
	compacted int64
	// changed is closed at the next write, and where watchers are to tell how far they are.
	changed chan struct{}
	asked   int // how often they were
}

var _ kubernetes.Interface = (*Store)(nil)

// New returns an empty store at revision 1, as a new etcd is.
func New() *Store {
	return &Store{revision: 1, compacted: 1, pairs: map[string]*mvccpb.KeyValue{}, changed: make(chan struct{})}
}

// Client is the store as the etcd3 storage wants it. It is closed when ctx is done.
func (s *Store) Client(ctx context.Context) *kubernetes.Client {
	c := clientv3.NewCtxClient(ctx)
	c.KV, c.Watcher, c.Lease = keyValues{s}, watcher{s}, leases{}
	return &kubernetes.Client{Client: c, Kubernetes: s}
}

// Revision is the store's newest revision.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Since returns the writes after a revision, the oldest first, of keys with a prefix.
// It fails with ErrCompacted if some of them are forgotten.
func (s *Store) Since(revision int64, prefix string) ([]Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.since(revision)
	if err != nil {
		return nil, err
	}
	var found []Change
	for _, c := range all {
		if strings.HasPrefix(c.Key, prefix) {
			found = append(found, c)
		}
	}
	return found, nil
}

// All returns the newest values of all keys with a prefix, sorted by key, and the store's revision.
func (s *Store) All(prefix string) ([]Change, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Change
	for _, key := range s.keysAt(prefix, clientv3.GetPrefixRangeEnd(prefix), s.revision) {
		pair := s.pairs[key]
		all = append(all, Change{Revision: pair.ModRevision, Key: key, Value: pair.Value, Created: true, now: pair})
	}
	return all, s.revision
}

func (s *Store) since(revision int64) ([]Change, error) {
	if revision < s.compacted {
		return nil, rpctypes.ErrCompacted
	}
	return s.log[min(revision-s.compacted, int64(len(s.log))):], nil
}

// Compact forgets all but the newest values up to a revision.
func (s *Store) Compact(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := min(revision, s.revision) - s.compacted; n > 0 {
		s.log, s.compacted = slices.Clone(s.log[n:]), s.compacted+n
	}
}

// at returns the pair of a key at a revision that is not the newest.
func (s *Store) at(key string, revision int64) *mvccpb.KeyValue {
	for _, c := range s.log[revision-s.compacted:] {
		if c.Key == key {
			return c.before
		}
	}
	return s.pairs[key]
}

// readable returns the revision to read at: 0 asks for the newest.
func (s *Store) readable(revision int64) (int64, error) {
	switch {
	case revision == 0:
		return s.revision, nil
	case revision > s.revision:
		return 0, rpctypes.ErrFutureRev
	case revision < s.compacted:
		return 0, rpctypes.ErrCompacted
	}
	return revision, nil
}

// Get is of kubernetes.Interface.
func (s *Store) Get(_ context.Context, key string, o kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := s.readable(o.Revision)
	if err != nil {
		return kubernetes.GetResponse{}, err
	}
	return kubernetes.GetResponse{KV: s.at(key, revision), Revision: s.revision}, nil
}

// List is of kubernetes.Interface.
func (s *Store) List(_ context.Context, prefix string, o kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return s.scan(max(prefix, o.Continue), clientv3.GetPrefixRangeEnd(prefix), o.Revision, o.Limit)
}

// scan returns the pairs from start on and before end, at a revision, and how many there are;
// limit 0 is all of them.
func (s *Store) scan(start, end string, revision, limit int64) (kubernetes.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := s.readable(revision)
	if err != nil {
		return kubernetes.ListResponse{}, err
	}
	answer := kubernetes.ListResponse{Revision: s.revision}
	for _, key := range s.keysAt(start, end, revision) {
		pair := s.at(key, revision)
		if pair == nil {
			continue
		}
		answer.Count++
		if limit == 0 || int64(len(answer.Kvs)) < limit {
			answer.Kvs = append(answer.Kvs, pair)
		}
	}
	return answer, nil
}

// keysAt are the keys from start on and before end that may have had a value at a revision.
func (s *Store) keysAt(start, end string, revision int64) []string {
	first, _ := slices.BinarySearch(s.keys, start)
	last, _ := slices.BinarySearch(s.keys, end)
	keys := s.keys[first:max(first, last)]
	if revision == s.revision {
		return keys
	}
	keys = slices.Clone(keys)
	for _, c := range s.log[revision-s.compacted:] {
		if c.Value == nil && c.Key >= start && c.Key < end {
			keys = append(keys, c.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Count is of kubernetes.Interface.
func (s *Store) Count(ctx context.Context, prefix string, _ kubernetes.CountOptions) (int64, error) {
	all, err := s.List(ctx, prefix, kubernetes.ListOptions{Limit: 1})
	return all.Count, err
}

// OptimisticPut is of kubernetes.Interface.
func (s *Store) OptimisticPut(_ context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pairs[key]
	if before.GetModRevision() != expected {
		answer := kubernetes.PutResponse{Revision: s.revision}
		if o.GetOnFailure {
			answer.KV = before
		}
		return answer, nil
	}
	now := &mvccpb.KeyValue{Key: []byte(key), Value: bytes.Clone(value), Version: before.GetVersion() + 1,
		CreateRevision: before.GetCreateRevision(), ModRevision: s.revision + 1, Lease: int64(o.LeaseID)}
	if before == nil {
		now.CreateRevision = now.ModRevision
		at, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, at, key)
	}
	s.pairs[key] = now
	s.add(key, before, now)
	return kubernetes.PutResponse{Succeeded: true, Revision: s.revision}, nil
}

// OptimisticDelete is of kubernetes.Interface.
func (s *Store) OptimisticDelete(_ context.Context, key string, expected int64, o kubernetes.DeleteOptions,
) (kubernetes.DeleteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pairs[key]
	if before.GetModRevision() != expected {
		answer := kubernetes.DeleteResponse{Revision: s.revision}
		if o.GetOnFailure {
			answer.KV = before
		}
		return answer, nil
	}
	if before != nil {
		s.remove(key, before)
	}
	return kubernetes.DeleteResponse{Succeeded: true, Revision: s.revision}, nil
}

// Delete takes away all keys for which a function is true. Each is a write.
func (s *Store) Delete(which func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Clone(s.keys) {
		if which(key) {
			s.remove(key, s.pairs[key])
		}
	}
}

func (s *Store) remove(key string, before *mvccpb.KeyValue) {
	delete(s.pairs, key)
	at, _ := slices.BinarySearch(s.keys, key)
	s.keys = slices.Delete(s.keys, at, at+1)
	s.add(key, before, nil)
}

// add notes a write.
func (s *Store) add(key string, before, now *mvccpb.KeyValue) {
	s.revision++
	s.log = append(s.log, Change{Revision: s.revision, Key: key, Value: now.GetValue(), Created: before == nil, now: now, before: before})
	close(s.changed)
	s.changed = make(chan struct{})
}
