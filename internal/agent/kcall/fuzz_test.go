// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// kernelSpaces are what isspace tells of in the kernel, whose table is that of Latin-1: the last
// byte is also a part of characters of UTF-8.
const kernelSpaces = " \t\n\v\f\r\xa0"

// asTheKernel cuts a command line as next_arg does in the kernel's lib/cmdline.c.
func asTheKernel(line string) (params []string) {
	for rest := skipSpaces(line); rest != ""; rest = skipSpaces(rest) {
		quoted, end := false, 0
		for ; end < len(rest); end++ {
			if !quoted && strings.IndexByte(kernelSpaces, rest[end]) >= 0 {
				break
			}
			if rest[end] == '"' {
				quoted = !quoted
			}
		}
		one := rest[:end]
		rest = rest[end:]
		if name, value, ok := strings.Cut(one, "="); ok && strings.HasPrefix(value, `"`) {
			one = name + "=" + strings.TrimSuffix(value[1:], `"`)
		}
		params = append(params, one)
	}
	return params
}

func skipSpaces(line string) string {
	for line != "" && strings.IndexByte(kernelSpaces, line[0]) >= 0 {
		line = line[1:]
	}
	return line
}

// FuzzCommandLine: each parameter reaches the kernel as it was ordered, whatever is in its value.
func FuzzCommandLine(f *testing.F) {
	f.Add("text", "a b", "plain", "1")
	f.Add("name", "voil\u00e0", "next", "\u00a0")
	f.Add("a", "\v", "b", "x\fy\rz")
	f.Add("a", "", "b", "=")
	f.Fuzz(func(t *testing.T, one, first, two, second string) {
		for _, name := range []string{one, two} {
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != "" || name == "" {
				t.Skip("no parameter's name")
			}
		}
		// A quote ends what is quoted, and cannot be written; what is quoted already is the user's.
		if strings.ContainsAny(first+second, "\"\x00") {
			t.Skip("no parameter's value")
		}
		given := []string{one + "=" + first, two + "=" + second}
		if got := asTheKernel(commandLine(given)); !slices.Equal(got, given) {
			t.Errorf("%q arrives as %q", given, got)
		}
	})
}

// FuzzRequest: no request makes a call that is not exactly one.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"unload":"m","load":{"name":"m"}}`))
	f.Add([]byte(`{"load":null,"unload":""}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Request
		if json.NewDecoder(bytes.NewReader(text)).Decode(&r) == nil && (r.Load == nil) != (r.Unload == "") {
			t.Skip("it would make a call")
		}
		var out bytes.Buffer
		if err := Run(bytes.NewReader(text), &out); err != nil {
			return
		}
		if a, err := answer(out.Bytes(), nil); err == nil {
			t.Errorf("%q was answered with %+v", text, a)
		}
	})
}

// FuzzAnswer: a child that ended badly without an answer has died, and a message is an error.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"errno":"EBUSY"}`), false)
	f.Add([]byte(`{"message":"no module"}`), true)
	f.Add([]byte(``), true)
	f.Fuzz(func(t *testing.T, out []byte, bad bool) {
		var ended error
		if bad {
			ended = errors.New("signal: killed")
		}
		a, err := answer(out, ended)
		if errors.Is(err, ErrDied) && !bad {
			t.Errorf("%q: %v", out, err)
		}
		if err == nil && a.Message != "" {
			t.Errorf("the message %q is no error", a.Message)
		}
		if err != nil && a != (Answer{}) {
			t.Errorf("%+v beside %v", a, err)
		}
	})
}
