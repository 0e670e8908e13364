// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/fuse"
)

// dumped writes a log as the kernel's EFI back end does: in parts of at most 1,024 bytes of whole
// lines, the newest being part 1.
func dumped(t *testing.T, dir, of, log string, at time.Time) {
	t.Helper()
	const size = 1024
	var parts []string
	now := ""
	for line := range strings.Lines(log) {
		if len(now)+len(line) > size {
			parts, now = append(parts, now), ""
		}
		now += line
	}
	parts = append(parts, now)
	slices.Reverse(parts)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, text := range parts {
		name := filepath.Join(dir, fmt.Sprintf("dmesg-efi_pstore-%d%02d001", at.Unix(), i+1))
		if err := os.WriteFile(name, fmt.Appendf(nil, "%s Part%d\n%s", of, i+1, text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDumpsInParts: what the kernel said in one go is judged in one go, wherever systemd-pstore has
// put it, and whatever is older.
func TestDumpsInParts(t *testing.T) {
	logs, err := filepath.Glob("../fuse/testdata/*.txt")
	if err != nil || len(logs) == 0 {
		t.Fatal("no dumps", err)
	}
	at := time.Unix(1_800_000_000, 0)
	for _, name := range logs {
		for where, below := range map[string]string{"pstore": "", "moved by systemd": "1800000000",
			"moved by systemd, numbered": "1800000000/001"} {
			t.Run(filepath.Base(name)+", "+where, func(t *testing.T) {
				content, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				dumped(t, filepath.Join(dir, below), "Panic#2", string(content), at)
				for i := range 3 * maxDumps { // the same name in earlier boots
					dumped(t, filepath.Join(dir, below), "Panic#2", fmt.Sprintf("older log %d\n", i), at.Add(-time.Duration(i+1)*time.Hour))
				}
				got, err := readDumps(dir, filepath.Join(dir, "not there"))
				if err != nil || len(got) != maxDumps {
					t.Fatalf("%d dumps, error %v", len(got), err)
				}
				if diff := cmp.Diff(string(content), got[0].Text); diff != "" {
					t.Errorf("the newest dump (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(fuse.Culprits(string(content)), fuse.Culprits(got[0].Text)); diff != "" {
					t.Errorf("culprits (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestDumpsOfOtherForms are dumps of their own.
func TestDumpsOfOtherForms(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(1_800_000_000, 0)
	for name, text := range map[string]string{
		"dmesg-ramoops-0": "no header", "dmesg-ramoops-1": "Oops#1 Part1\nan oops\n", "dmesg-ramoops-2": "Panic#2 Part1\na panic\n",
		"dmesg-efi_pstore-1.enc.z": "packed", "console-ramoops-0": "a console", "1/2/3/4/dmesg-ramoops-0": "too deep",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	dumps, err := readDumps(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range dumps {
		got = append(got, d.Text)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a panic\n", "an oops\n", "no header"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
