// SPDX-License-Identifier: Apache-2.0

package images

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
