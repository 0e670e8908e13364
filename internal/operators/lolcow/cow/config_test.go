// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func first(int) int { return 0 }

func TestArgumentsAreTheGreeting(t *testing.T) {
	for given, c := range map[string]struct {
		args []string
		want string
	}{
		"one argument":                 {[]string{"Oh my gosh!"}, "Oh my gosh!"},
		"several":                      {[]string{"Oh", "my"}, "Oh my"},
		"what looks like an option":    {[]string{"--help"}, "--help"},
		"what a shell would expand":    {[]string{"-n * $HOME `x`"}, "-n * $HOME `x`"},
		"none: a fortune":              {nil, fortunes[0]},
		"an empty one: a fortune":      {[]string{""}, fortunes[0]},
		"only spaces, as they are":     {[]string{" \n "}, " \n "},
		"lines that end in other ways": {[]string{"a\r\nb\rc"}, "a\nb\nc"},
		"no UTF-8":                     {[]string{"a\xffb"}, "a\uFFFDb"},
	} {
		got, err := Configure(c.args, environment(nil), first)
		if err != nil {
			t.Errorf("%s: %v", given, err)
		}
		if diff := cmp.Diff(Config{Greeting: c.want, Port: 8080}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
}

func TestEnvironment(t *testing.T) {
	for given, c := range map[string]struct {
		environment map[string]string
		port        int
		once        bool
		err         string
	}{
		"nothing":            {nil, 8080, false, ""},
		"a port":             {map[string]string{"PORT": "30685"}, 30685, false, ""},
		"any port":           {map[string]string{"PORT": "0"}, 0, false, ""},
		"a port too high":    {map[string]string{"PORT": "65536"}, 0, false, `PORT is "65536"`},
		"a service's link":   {map[string]string{"PORT": "tcp://10.0.0.1:80"}, 0, false, `PORT is "tcp://10.0.0.1:80"`},
		"in the terminal":    {map[string]string{"LOLCOW_ONCE": "1"}, 8080, true, ""},
		"neither yes nor no": {map[string]string{"LOLCOW_ONCE": "often"}, 0, false, `LOLCOW_ONCE is "often"`},
	} {
		got, err := Configure([]string{"Moo"}, environment(c.environment), first)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v instead of %s", given, err, c.err)
			}
			continue
		}
		if err != nil || got.Port != c.port || got.Once != c.once {
			t.Errorf("%s: %+v (%v)", given, got, err)
		}
	}
}

func TestEveryFortuneCanBeTold(t *testing.T) {
	told := map[string]bool{}
	for i := range fortunes {
		c, err := Configure(nil, environment(nil), func(n int) int {
			if n != len(fortunes) {
				t.Fatalf("one of %d is picked", n)
			}
			return i
		})
		if err != nil {
			t.Fatal(err)
		}
		told[c.Greeting] = true
	}
	if len(told) != len(fortunes) || len(told) < 20 {
		t.Errorf("%d different fortunes of %d", len(told), len(fortunes))
	}
}
