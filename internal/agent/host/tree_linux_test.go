// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRealTreeLinks opens modules that weak-updates link to, as the host means them, whatever the
// same names are here.
func TestRealTreeLinks(t *testing.T) {
	h := realHost(t, time.Minute)
	write(t, h.root, "lib/modules/6.0.0-1-test/extra/a.ko", "of another kernel")
	dir := filepath.Join(h.root, "lib/modules/6.1.0-1-test/weak-updates")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"absolute.ko": "/lib/modules/6.0.0-1-test/extra/a.ko", "relative.ko": "../../6.0.0-1-test/extra/a.ko", "chain.ko": "absolute.ko",
		"circle.ko": "circle.ko", "nowhere.ko": "/lib/modules/6.0.0-1-test/extra/b.ko",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := h.Tree()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"absolute.ko": "of another kernel", "relative.ko": "of another kernel",
		"chain.ko": "of another kernel", "circle.ko": "", "nowhere.ko": ""} {
		content, err := fs.ReadFile(tree, "weak-updates/"+name)
		if string(content) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	if _, err := tree.Open("../../6.0.0-1-test/extra/a.ko"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a name that leads out: %v", err)
	}
	if entries, err := fs.ReadDir(tree, "weak-updates"); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
}
