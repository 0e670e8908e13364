// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-project/drover/internal/agent/store"
)

// TestStoreHasABound: a delivery that does not fit says so, leaves nothing, and fits once another
// has gone.
func TestStoreHasABound(t *testing.T) {
	n := newNode(t, store.Options{MaxTotal: 100})
	n.deliver(map[string]string{"a": strings.Repeat("a", 60)})
	n.imported("first")
	n.imported("shared") // the same content again takes no room
	damaged := filepath.Join(n.state, "damaged", "old")
	if err := os.WriteFile(damaged, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.out, "tree")); err != nil {
		t.Fatal(err)
	}
	n.deliver(map[string]string{"b": strings.Repeat("b", 60)})
	if _, err := n.store.Import(t.Context(), "second", carrier); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("imported beyond the bound: %v", err)
	}
	if _, err := os.Lstat(damaged); err == nil {
		t.Error("what is kept for a post-mortem keeps a delivery out")
	}
	if left, err := os.ReadDir(filepath.Join(n.state, "incoming")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := n.store.Retain(nil); err != nil {
		t.Fatal(err)
	}
	n.imported("second")
}

// TestStoreLeavesRoomForTheAgent: a delivery that would fill the disk is not begun.
func TestStoreLeavesRoomForTheAgent(t *testing.T) {
	const tooMuch = 1 << 60 // no disk has it
	n := newNode(t, store.Options{MaxTotal: tooMuch, MaxBytes: tooMuch})
	n.file("manifest.json", `{"schema":1,"kernel":"6.1.0-t","files":[{"path":"a","size":100000000000000000,"sha256":"`+strings.Repeat("0", 64)+
		`"}]}`)
	if _, err := n.store.Import(t.Context(), "d", carrier); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("began to import what does not fit on the disk: %v", err)
	}
}
