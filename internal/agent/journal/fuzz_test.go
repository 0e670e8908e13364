// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// seal writes a file whose envelope is right, so that it is the content that is read.
func seal(t testing.TB, dir, name string, of int, content []byte) {
	t.Helper()
	text := fmt.Appendf(nil, `{"schema":%d,"sha256":"%x","content":%s}`, of, sha256.Sum256(content), content)
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzRead: a journal either is not trusted, or can be worked with and written again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"bootID":"b","loaded":{"a/b":{"item":{"name":"b","namespace":"a"},"config":{},"main":"m",` +
		`"modules":[{"name":"m","buildID":"01","ours":true}],"since":"2026-01-02T03:04:05Z"}},"deliveries":{"a/b":["x","y"]}}`))
	f.Add([]byte(`{"bootID":"b","loaded":{"a/b":null}}`))
	f.Add([]byte(`{"bootID":"b","worked":{"a/b":null},"replaced":{"a/b":null},"refused":{"x":{}}}`))
	f.Add([]byte(`{"bootID":"b","rolledBack":{"a/b":{"hash":"h","reason":"r","message":"m","times":-9}}}`))
	f.Add([]byte(`{"bootID":"b","loaded":{"a":{}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if !json.Valid(content) {
			t.Skip("the envelope is not right")
		}
		dir := t.TempDir()
		seal(t, dir, File, schema, content)
		j, err := Read(dir, "", statefile.NoSync)
		if j == nil || j.Loaded == nil {
			t.Fatalf("no journal, error %v", err)
		}
		if err != nil {
			if untrusted := (*statefile.UntrustedError)(nil); !errors.As(err, &untrusted) || len(j.Loaded) > 0 || j.BootID != "" {
				t.Errorf("journal %+v, error %v", j, err)
			}
			return
		}
		workWith(j)
		if err := j.Write(); err != nil {
			t.Fatal(err)
		}
		again, err := Read(dir, "", statefile.NoSync)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(j, again, cmp.AllowUnexported(Journal{}, disk{}), cmpopts.EquateEmpty(),
			cmpopts.IgnoreTypes(statefile.Sync(nil))); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
	})
}

// workWith does what the agent does with a journal.
func workWith(j *Journal) {
	k := orders.Key{Namespace: "a", Name: "b"}
	held := map[string]string{"x": "1", "y": "2"}
	ordered := map[orders.Key]*v1beta1.NodeModuleSpec{k: {}}
	j.Needed(ordered, held)
	j.NeededBy(k, "m")
	j.OursByOther(k, "m")
	for key, l := range j.Loaded {
		j.OursLive(key, l, map[string]host.Module{"m": {Name: "m"}})
		l.Drop("none")
	}
	for _, w := range j.Worked {
		w.Order(ordered[k])
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for key, was := range j.RolledBack {
		j.RollBack(key, was.Hash, orders.Attempt{Reason: "r"}, now)
	}
}

// FuzzReadRetried: so does the memory of retries.
func FuzzReadRetried(f *testing.F) {
	f.Add([]byte(`{"last":{"a/b":"2026-01-02T03:04:05Z"}}`))
	f.Add([]byte(`{"last":null}`))
	f.Add([]byte(`{"last":{"a/b":"0000-01-01T00:00:00+23:59"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if !json.Valid(content) {
			t.Skip("the envelope is not right")
		}
		dir := t.TempDir()
		seal(t, dir, RetriedFile, retriedSchema, content)
		r, err := ReadRetried(dir, statefile.NoSync)
		if r == nil || r.Last == nil || err != nil && len(r.Last) > 0 {
			t.Fatalf("memory %+v, error %v", r, err)
		}
		k := orders.Key{Namespace: "a", Name: "b"}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		r.Of(k)
		if err := r.Note(k, at, func(orders.Key) bool { return true }); err != nil {
			t.Fatal(err)
		}
		again, err := ReadRetried(dir, statefile.NoSync)
		if err != nil || !again.Of(k).Time.Equal(at) || len(again.Last) != len(r.Last) {
			t.Errorf("read again: %+v, %v", again, err)
		}
	})
}
