// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

func TestListAndSplit(t *testing.T) {
	content := []byte("module")
	once := append(bytes.Clone(content), signature.Trailer([]byte("first"))...)
	twice := append(bytes.Clone(once), signature.Trailer([]byte("second"))...)
	damaged := append(bytes.Clone(once), "~Module signature appended~\n"...)
	for name, tc := range map[string]struct {
		given    []byte
		stripped []byte // nil: an error
		listed   int
	}{
		"none":    {given: content},
		"one":     {given: once, stripped: content, listed: 1},
		"two":     {given: twice, stripped: once, listed: 2},
		"damaged": {given: damaged, listed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			stripped, _, err := signature.Split(tc.given)
			if diff := cmp.Diff(tc.stripped, stripped); diff != "" || (err != nil) != (tc.stripped == nil) {
				t.Errorf("stripped: %v, %s", err, diff)
			}
			if unsigned := errors.Is(err, signature.ErrUnsigned); unsigned != (tc.listed == 0) {
				t.Errorf("error %v", err)
			}
			if all := signature.List(tc.given); len(all) != tc.listed {
				t.Errorf("listed %+v", all)
			}
		})
	}
}

// What follows a part of the input must not be overwritten by an append to the part.
func TestPartsOfAModuleCannotGrowIntoIt(t *testing.T) {
	module := append([]byte("module"), signature.Trailer([]byte("message"))...)
	before := bytes.Clone(module)
	content, message, err := signature.Split(module)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = append(content, "xxxx"...), append(message, "xxxx"...)
	if !bytes.Equal(module, before) {
		t.Error("the module has changed")
	}
}

func FuzzSplit(f *testing.F) {
	one := append([]byte("module"), signature.Trailer([]byte("message"))...)
	f.Add(one)
	f.Add(append(bytes.Clone(one), signature.Trailer(nil)...))
	f.Add([]byte("~Module signature appended~\n"))
	f.Add(bytes.Repeat(signature.Trailer(nil), 40))
	f.Fuzz(func(t *testing.T, module []byte) {
		content, message, err := signature.Split(module)
		if errors.Is(err, signature.ErrUnsigned) == signature.Signed(module) {
			t.Errorf("signed: %v, but %v", signature.Signed(module), err)
		}
		if err == nil && !bytes.Equal(append(bytes.Clone(content), signature.Trailer(message)...), module) {
			t.Error("the parts do not make the whole")
		}
		signature.List(module)
	})
}
