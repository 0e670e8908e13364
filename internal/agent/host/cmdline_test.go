// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"testing"
)

// cmdlines have parameters of nic and snd-card. compare_test.go asks modprobe the same.
var cmdlines = map[string]struct {
	given string
	// options of nic and of snd_card.
	nic, card []string
}{
	"none":                    {given: "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=1.2 ro quiet nic=3 nick.a=1"},
	"one":                     {given: "ro nic.size=3 quiet", nic: []string{"size=3"}},
	"several, in order":       {given: "nic.a=1 nic.b=2 nic.a=3", nic: []string{"a=1", "b=2", "a=3"}},
	"dash and underscore":     {given: "snd-card.index=1 snd_card.id=x", card: []string{"index=1", "id=x"}},
	"without a value":         {given: "nic.debug ro", nic: []string{"debug"}},
	"an empty value":          {given: "nic.name= ro", nic: []string{"name="}},
	"a value with a dot":      {given: "nic.addr=10.0.0.1", nic: []string{"addr=10.0.0.1"}},
	"a value with an equals":  {given: "nic.map=a=b", nic: []string{"map=a=b"}},
	"a quoted value":          {given: `nic.text="a b" nic.size=1`, nic: []string{`text="a b"`, "size=1"}},
	"quoted by a boot loader": {given: `"nic.text=a b" nic.size=1`, nic: []string{`text="a b"`, "size=1"}},
	"two dots":                {given: "nic.a.b=1 nic.c=1", nic: []string{"c=1"}},
	"a path":                  {given: "init=/nic.size=3 ro"},
	"tabs, and a line's end":  {given: "nic.a=1\tnic.b=2\n", nic: []string{"a=1", "b=2"}},
	"nothing":                 {given: ""},
}

func TestCmdlineParams(t *testing.T) {
	for name, tc := range cmdlines {
		for module, want := range map[string][]string{"nic": tc.nic, "snd_card": tc.card, "snd-card": tc.card} {
			if got := cmdlineParams(tc.given, module); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %q, want %q", name, module, got, want)
			}
		}
	}
}
