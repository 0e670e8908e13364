// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// FuzzDecode: a file's content is refused, or the fuse can work with it and write it again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"bootID":"b","builds":[{"module":"drv","buildID":"01","intent":"2026-01-02T03:04:05Z","strikes":1}]}`))
	f.Add([]byte(`{"stopped":true,"builds":[{"module":"a-b","live":"2026-01-02T03:04:05Z","early":9},{"module":"a-b"}]}`))
	f.Add([]byte(`{"builds":[{"module":"a","quarantined":"9999-12-31T23:59:59Z","struck":"0001-01-01T00:00:00Z","strikes":-9}]}`))
	f.Add([]byte(`{"builds":null}`))
	f.Add([]byte(`null`))
	now := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, content []byte) {
		if !json.Valid(content) {
			t.Skip("the envelope is not right")
		}
		s, err := decode(fmt.Appendf(nil, `{"schema":%d,"sha256":"%x","state":%s}`, schema, sha256.Sum256(content), content))
		if err != nil {
			return
		}
		before := len(s.Builds)
		again := s.clone()
		data, err := again.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err = decode(data); err != nil || len(again.Builds) != before {
			t.Fatalf("%d builds are %d when written and read, %v", before, len(again.Builds), err)
		}
		for b, e := range again.Builds {
			if other := s.Builds[b]; other == nil || other.Strikes != e.Strikes || !other.Intent.Equal(e.Intent) {
				t.Errorf("%s: %+v, and %+v when read again", b, other, e)
			}
		}
		for _, v := range first(s.boot("another", []Evidence{{Module: "drv"}}, now)) {
			if s.Builds[v.Build] == nil {
				t.Errorf("a verdict on %s, which nobody loaded", v.Build)
			}
		}
		for b := range s.Builds {
			_, _ = s.allowed(b, now)
		}
		s.settle(now)
		s.list(now)
		if s.prune(now); len(s.Builds) > MaxBuilds {
			t.Errorf("%d builds", len(s.Builds))
		}
		if _, err := s.encode(); err != nil {
			t.Error(err)
		}
	})
}

func first[A, B any](a A, _ B) A { return a }
