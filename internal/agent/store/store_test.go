// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
)

const carrier = types.UID("0f4e31c2-8f3c-4b7e-9a55-6f1f0c3d2b1a")

// node is a kubelet's pods directory with one carrier's output, and a store.
type node struct {
	t     *testing.T
	pods  string
	state string
	out   string
	store *store.Store
}

func newNode(t *testing.T, opt store.Options) *node {
	t.Helper()
	n := &node{t: t, pods: t.TempDir(), state: t.TempDir()}
	rel, err := store.OutputDir(carrier)
	if err != nil {
		t.Fatal(err)
	}
	n.out = filepath.Join(n.pods, rel)
	if err := os.MkdirAll(n.out, 0o755); err != nil {
		t.Fatal(err)
	}
	opt.PodsDir, opt.Sync = n.pods, statefile.NoSync
	if n.store, err = store.New(t.Context(), n.state, opt); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) file(name, content string) {
	n.t.Helper()
	name = filepath.Join(n.out, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// manifest lists files as name → content.
func (n *node) manifest(files map[string]string) {
	n.t.Helper()
	m := manifest.Manifest{Schema: manifest.Schema, Kernel: "6.1.0-t"}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[name]))
		m.Files = append(m.Files, manifest.Entry{Path: name, Size: int64(len(files[name])), SHA256: hex.EncodeToString(sum[:])})
	}
	data, err := json.Marshal(m)
	if err != nil {
		n.t.Fatal(err)
	}
	n.file(manifest.File, string(data))
}

func (n *node) deliver(files map[string]string) {
	n.t.Helper()
	for name, content := range files {
		n.file("tree/"+name, content)
	}
	n.manifest(files)
}

func (n *node) imported(id string) string {
	n.t.Helper()
	digest, err := n.store.Import(n.t.Context(), id, carrier)
	if err != nil {
		n.t.Fatalf("import %s: %v", id, err)
	}
	return digest
}

func (n *node) read(id string) map[string]string {
	n.t.Helper()
	tree, err := n.store.Open(id)
	if err != nil {
		n.t.Fatalf("open %s: %v", id, err)
	}
	got := map[string]string{}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		got[name] = string(data)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

// stray returns what a store should never keep after an import failed.
func (n *node) stray() []string {
	n.t.Helper()
	var all []string
	for _, d := range []string{"incoming", "sha256", "deliveries"} {
		entries, err := os.ReadDir(filepath.Join(n.state, d))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, d+"/"+e.Name())
		}
	}
	return all
}

var good = map[string]string{"lib/modules/6.1.0-t/extra/a.ko": "aaa", "lib/modules/6.1.0-t/modules.dep": "", "firmware/a.bin": "fw"}

func TestImportTakesWhatTheManifestLists(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	digest := n.imported("id1")
	if diff := cmp.Diff(good, n.read("id1")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	held, err := n.store.Held()
	if diff := cmp.Diff(map[string]string{"id1": digest}, held); diff != "" || err != nil {
		t.Errorf("held: %v\n%s", err, diff)
	}
	if again := n.imported("id2"); again != digest {
		t.Errorf("same content under another id has digest %s, want %s", again, digest)
	}
	trees, err := os.ReadDir(filepath.Join(n.state, "sha256"))
	if err != nil || len(trees) != 1 {
		t.Errorf("trees %v %v, want one", trees, err)
	}
	info, err := os.Stat(filepath.Join(n.state, "sha256", digest, "lib"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v %v, want 0700", info.Mode(), err)
	}
	// Held already: the carrier is not needed any more.
	if err := os.RemoveAll(n.out); err != nil {
		t.Fatal(err)
	}
	if again := n.imported("id1"); again != digest {
		t.Errorf("import of a held id gave %s", again)
	}
}

func TestImportSaysNotReady(t *testing.T) {
	for name, arrange := range map[string]func(n *node){
		"no manifest yet":    func(n *node) { n.file("tree/lib/x.ko", "x") },
		"no output yet":      func(n *node) { n.remove(n.out) },
		"no pod there":       func(n *node) { n.remove(filepath.Join(n.pods, string(carrier))) },
		"manifest half done": func(n *node) { n.file("manifest.json.tmp", "{") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, store.Options{})
			arrange(n)
			_, err := n.store.Import(t.Context(), "id1", carrier)
			if !errors.Is(err, store.ErrNotReady) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want not ready", err)
			}
		})
	}
}

func (n *node) remove(name string) {
	n.t.Helper()
	if err := os.RemoveAll(name); err != nil {
		n.t.Fatal(err)
	}
}

func TestImportReportsTheExportsFailure(t *testing.T) {
	n := newNode(t, store.Options{})
	n.file(manifest.ErrorFile, `{"reason":"ImageUnreadable","message":"no kernel here\u001b[31m"}`)
	_, err := n.store.Import(t.Context(), "id1", carrier)
	var failure *manifest.Failure
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a failure", err)
	}
	want := manifest.Failure{Reason: manifest.ReasonImageUnreadable, Message: "no kernel here?[31m"}
	if diff := cmp.Diff(want, *failure); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestImportRefusesHostileOutput(t *testing.T) {
	link := func(n *node, target, name string) {
		n.t.Helper()
		name = filepath.Join(n.out, name)
		n.remove(name)
		if err := os.Symlink(target, name); err != nil {
			n.t.Fatal(err)
		}
	}
	const ko = "lib/modules/6.1.0-t/extra/a.ko"
	cases := map[string]struct {
		opt     store.Options
		arrange func(n *node)
		reason  string
	}{
		"extra file":             {arrange: func(n *node) { n.file("tree/lib/more.ko", "x") }},
		"missing file":           {arrange: func(n *node) { n.remove(filepath.Join(n.out, "tree", ko)) }},
		"missing tree":           {arrange: func(n *node) { n.remove(filepath.Join(n.out, "tree")) }},
		"truncated":              {arrange: func(n *node) { n.file("tree/"+ko, "aa") }},
		"longer":                 {arrange: func(n *node) { n.file("tree/"+ko, "aaaa") }},
		"other content":          {arrange: func(n *node) { n.file("tree/"+ko, "bbb") }},
		"file is a link":         {arrange: func(n *node) { link(n, "../../../../firmware/a.bin", "tree/"+ko) }},
		"file is a link out":     {arrange: func(n *node) { link(n, "/etc/passwd", "tree/"+ko) }},
		"directory is a link":    {arrange: func(n *node) { link(n, "/etc", "tree/firmware") }},
		"tree is a link":         {arrange: func(n *node) { link(n, "/etc", "tree") }},
		"manifest is a link":     {arrange: func(n *node) { link(n, "/etc/passwd", "manifest.json") }},
		"output is a link":       {arrange: func(n *node) { link(n, "/etc", "") }},
		"pipe":                   {arrange: func(n *node) { n.pipe("tree/lib/pipe") }},
		"manifest is a pipe":     {arrange: func(n *node) { n.remove(n.out + "/manifest.json"); n.pipe("manifest.json") }},
		"manifest climbs":        {arrange: func(n *node) { n.manifest(map[string]string{"../../x": "x"}) }},
		"manifest is absolute":   {arrange: func(n *node) { n.manifest(map[string]string{"/etc/x": "x"}) }},
		"manifest is truncated":  {arrange: func(n *node) { n.file(manifest.File, `{"schema":1,"files":[{"pa`) }},
		"manifest of the future": {arrange: func(n *node) { n.file(manifest.File, `{"schema":2}`) }},
		"manifest far too large": {arrange: func(n *node) { n.file(manifest.File, strings.Repeat(" ", 17<<20)) }},
		"error of unknown reason": {arrange: func(n *node) {
			n.remove(n.out + "/manifest.json")
			n.file(manifest.ErrorFile,
				`{"reason":"Ready"}`)
		}},
		"too many files":      {opt: store.Options{MaxFiles: 2}, reason: manifest.ReasonImageTooLarge, arrange: func(*node) {}},
		"too many bytes":      {opt: store.Options{MaxBytes: 4}, reason: manifest.ReasonImageTooLarge, arrange: func(*node) {}},
		"sizes that overflow": {reason: manifest.ReasonImageTooLarge, arrange: func(n *node) { n.hugeManifest() }},
		"too many bytes, no room": {opt: store.Options{MaxTotal: 1}, reason: manifest.ReasonImageTooLarge,
			arrange: func(n *node) { n.hugeManifest() }},
		"too many files, no room":  {opt: store.Options{MaxTotal: 1, MaxFiles: 2}, reason: manifest.ReasonImageTooLarge, arrange: func(*node) {}},
		"directories without end":  {arrange: func(n *node) { n.dirs("tree/" + strings.Repeat("d/", 40)) }},
		"directories in thousands": {opt: store.Options{MaxFiles: 10}, arrange: func(n *node) { n.manyDirs(40) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.opt)
			n.deliver(good)
			c.arrange(n)
			_, err := n.store.Import(t.Context(), "id1", carrier)
			var failure *manifest.Failure
			if !errors.As(err, &failure) {
				t.Fatalf("got %v, want a refusal", err)
			}
			want := c.reason
			if want == "" {
				want = manifest.ReasonDeliveryRefused
			}
			if failure.Reason != want {
				t.Errorf("reason %s (%s), want %s", failure.Reason, failure.Message, want)
			}
			if left := n.stray(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func (n *node) pipe(name string) {
	n.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(n.out, name), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) dirs(name string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.out, name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) manyDirs(count int) {
	for i := range count {
		n.dirs(fmt.Sprintf("tree/d%d", i))
	}
}

func (n *node) hugeManifest() {
	sum := strings.Repeat("a", 64)
	n.file(manifest.File, fmt.Sprintf(`{"schema":1,"files":[{"path":"a","size":%d,"sha256":%q},{"path":"b","size":%d,"sha256":%q}]}`,
		int64(1)<<62, sum, int64(1)<<62, sum))
}

func TestImportRefusesOddNames(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	for _, uid := range []types.UID{"", "..", "../../etc", carrier + "/..", "0F4E31C2-8F3C-4B7E-9A55-6F1F0C3D2B1A", carrier + "\n"} {
		if _, err := n.store.Import(t.Context(), "id1", uid); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("UID %q: got %v, want an error that is not 'not ready'", uid, err)
		}
	}
	for _, id := range []string{"", ".", "../x", "a/b", strings.Repeat("a", 129)} {
		if _, err := n.store.Import(t.Context(), id, carrier); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("id %q: got %v, want an error that is not 'not ready'", id, err)
		}
	}
}

func TestMissingPodsDirectoryIsNotWaiting(t *testing.T) {
	n := newNode(t, store.Options{})
	n.remove(n.pods)
	if _, err := n.store.Import(t.Context(), "id1", carrier); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want an error that is not 'not ready'", err)
	}
}
