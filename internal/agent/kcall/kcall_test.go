// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	cases := map[string]struct {
		given []string
		then  string
	}{
		"none":               {nil, ""},
		"plain":              {[]string{"a=1", "b"}, "a=1 b"},
		"blanks":             {[]string{"text=a b"}, `text="a b"`},
		"a part of a letter": {[]string{"name=voil\u00e0 b", "name=voil\u00e0"}, "name=\"voil\u00e0 b\" name=\"voil\u00e0\""},
		"other blanks":       {[]string{"a=\v", "b=x\fy", "c=\r"}, "a=\"\v\" b=\"x\fy\" c=\"\r\""},
		"quoted by a user":   {[]string{`text="a b"`}, `text="a b"`},
	}
	for name, tc := range cases {
		if got := commandLine(tc.given); got != tc.then {
			t.Errorf("%s: %q, want %q", name, got, tc.then)
		}
	}
}

func TestRunWantsOneCall(t *testing.T) {
	for _, request := range []string{`{}`, `{"unload":"m","load":{"name":"m"}}`} {
		var out bytes.Buffer
		if err := Run(strings.NewReader(request), &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "exactly one") {
			t.Errorf("%s: %s", request, out.String())
		}
	}
	if err := Run(strings.NewReader("no JSON"), &bytes.Buffer{}); err == nil {
		t.Error("junk was taken for a request")
	}
}

func TestAChildThatCannotStart(t *testing.T) {
	c := Caller{Command: []string{"/does/not/exist"}}
	if _, err := c.Call("m", Request{Unload: "m"}, nil); !errors.Is(err, ErrNotStarted) {
		t.Errorf("the error is %v", err)
	}
}
