// SPDX-License-Identifier: Apache-2.0

package images

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/images/licence"
)

func TestDepends(t *testing.T) {
	given := "Package: kmod\nDepends: libc6 (>= 2.34), liblzma5 (>= 5.1) | liblzma6,lsb-base\nDescription: depends on nothing\n"
	if diff := cmp.Diff([]string{"libc6", "liblzma5", "lsb-base"}, depends(given)); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyFolderIsNotKmod(t *testing.T) {
	if _, err := KmodFiles(t.TempDir()); err == nil {
		t.Error("an empty folder was taken for kmod")
	}
}

// TestLockNamesAllPackages that an image needs, for both processors, each with its licence, and by
// nothing that a mirror could change.
func TestLockNamesAllPackages(t *testing.T) {
	pins, snapshot, err := pinned(lock)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, p := range pins {
		found[p.arch] = append(found[p.arch], p.name)
		if licence.OfDebian(p.name) == "" {
			t.Errorf("%s has no licence in images/licence", p.name)
		}
		last := "/archive/" + p.archive + "/" + snapshot + "/" + p.path
		if got := p.addresses(sources, snapshot); len(got) != 2 || !strings.HasSuffix(got[1], last) {
			t.Errorf("addresses %v", got)
		}
	}
	want := []string{distribution, "kmod", "libc6", "libkmod2", "liblzma5", "libssl3", "libzstd1"}
	for _, arch := range []string{"amd64", "arm64"} {
		slices.Sort(found[arch])
		if diff := cmp.Diff(want, found[arch]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", arch, diff)
		}
	}
}

func TestLocksThatAreRefused(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for given, says := range map[string]string{
		"amd64\tkmod\t1\t" + sum + "\tdebian\tpool/k.deb\n":                   "names no snapshot",
		"snapshot\t1\namd64\tkmod\t1\tabc\tdebian\tpool/k.deb\n":              "not a package",
		"snapshot\t1\namd64\tkmod\t1\t" + sum + "\tdebian\t../../etc/k.deb\n": "not a package",
		"snapshot\t1\namd64\tkmod\t1\t" + sum + "\n":                          "not a package",
	} {
		if _, _, err := pinned(given); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", given, err)
		}
	}
}

// TestAProcessorWithoutPackages is told at once.
func TestAProcessorWithoutPackages(t *testing.T) {
	err := FetchKmod(t.Context(), t.TempDir(), "s390x")
	if err == nil || !strings.Contains(err.Error(), "names no packages for s390x") {
		t.Error(err)
	}
}
