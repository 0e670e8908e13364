// SPDX-License-Identifier: Apache-2.0

package words_test

import (
	"testing"

	"github.com/drover-project/drover/internal/shared/words"
)

func TestList(t *testing.T) {
	for want, names := range map[string][]string{
		"":                nil,
		"a":               {"a"},
		"a, b":            {"a", "b"},
		"a, b and 1 more": {"a", "b", "c"},
	} {
		if got := words.List(names, 2); got != want {
			t.Errorf("%v: %q", names, got)
		}
	}
}

func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 nodes": 0, "1 node": 1, "2 nodes": 2} {
		if got := words.Count(n, "node"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestFit(t *testing.T) {
	for given, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc", "abé": "ab", "a\xff": "a?"} {
		if got := words.Fit(given, 3); got != want {
			t.Errorf("%q is cut to %q, want %q", given, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "abcdef": "abcdef", "abcdefg": "ab…defg", "é": "é", "éabcdef": "é…cdef", "a\xff": "a?", "a\xffbcdef\xfe": "a?…def?",
	} {
		if got := words.Clip(given, 6); got != want {
			t.Errorf("%q is clipped to %q, want %q", given, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for given, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc…", "abé": "ab…", "a\xff": "a?", "a\xffbc": "a?b…"} {
		if got := words.Cut(given, 3); got != want {
			t.Errorf("%q is cut to %q, want %q", given, got, want)
		}
	}
}
