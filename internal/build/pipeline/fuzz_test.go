// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzResources: a list of resources, written again, is the same list.
func FuzzResources(f *testing.F) {
	f.Add("cpu=2,memory=4Gi")
	f.Add(" cpu = 500m ,,ephemeral-storage=1e3")
	f.Add("memory=-1")
	f.Add("cpu=9999999999999999999999E")
	f.Add("cpu=1E-999999999")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseResources(text)
		if err != nil {
			return
		}
		var items []string
		for name, quantity := range list {
			if quantity.Sign() < 0 {
				t.Errorf("%s is %s", name, &quantity)
			}
			items = append(items, fmt.Sprintf("%s=%s", name, &quantity))
		}
		again, err := ParseResources(strings.Join(items, ","))
		if err != nil || len(again) != len(list) {
			t.Fatalf("%q, %v", items, err)
		}
		for name, quantity := range list {
			if other := again[name]; other.Cmp(quantity) != 0 {
				t.Errorf("%s: %s, and %s when read again", name, &quantity, &other)
			}
		}
	})
}

// FuzzExplain: what is quoted of a build's log is in it, is UTF-8 with "?" for what is none, and is
// bounded.
func FuzzExplain(f *testing.F) {
	f.Add("cc -c x.c\nx.c:1: error: unknown type name\nmake: *** [x.o] Error 1\n")
	f.Add("\xff\n\n  ERROR \r\n")
	f.Add(strings.Repeat("error é\n", 400))
	f.Add(strings.Repeat("error \xe9 in Latin-1\n", 400))
	f.Add("error \xe9 in Latin-1\n")
	f.Fuzz(func(t *testing.T, log string) {
		shown := strings.ToValidUTF8(log, "?")
		for _, b := range []builder{native{}, buildah{}} {
			said := b.explain(log)
			if len(said) > maxExcerpt+len("…") || !utf8.ValidString(said) {
				t.Errorf("%d bytes: %q", len(said), said)
			}
			lines := strings.Split(strings.TrimSuffix(said, "…"), "\n")
			for i, line := range lines {
				if (i < len(lines)-1 || !strings.HasSuffix(said, "…")) && !strings.Contains(shown, line) {
					t.Errorf("%q is not in the log", line)
				}
			}
		}
	})
}

// FuzzCredentials: a condition does not quote a password, as programs read it from an address.
func FuzzCredentials(f *testing.F) {
	f.Add("robot", "s3cret")
	f.Add("a@b", "p@ss")
	f.Add("", "@")
	f.Fuzz(func(t *testing.T, user, password string) {
		if strings.ContainsFunc(user+password, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#", r) }) {
			t.Skip("no part of an address before its host")
		}
		address := fmt.Sprintf("https://%s:%s@registry.example.com/a", user, password)
		if parsed, err := url.Parse(address); err != nil || parsed.Host != "registry.example.com" {
			t.Skip("no address")
		}
		said := withoutCredentials("pull " + address + ": denied")
		if said != "pull https://…@registry.example.com/a: denied" {
			t.Errorf("%q becomes %q", address, said)
		}
	})
}
