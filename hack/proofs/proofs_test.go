// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChoose(t *testing.T) {
	given := []proof{{group: "a", name: "one"}, {group: "a", name: "two"}, {group: "b", name: "three"}}
	for name, tc := range map[string]struct{ only, groups, then, says string }{
		"all":              {then: "one two three"},
		"names":            {only: "three,one", then: "one three"},
		"a group":          {groups: "a", then: "one two"},
		"both":             {only: "two three", groups: "a", then: "two"},
		"nothing is left":  {only: "three", groups: "a", says: "no proof of the group a is called three"},
		"an unknown name":  {only: "one,four", says: `"four"`},
		"an unknown group": {groups: "c", says: `"c"`},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(given, tc.only, tc.groups)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v", err)
			}
			var names []string
			for _, p := range chosen {
				names = append(names, p.name)
			}
			if diff := cmp.Diff(tc.then, strings.Join(names, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestGoesOnAfterARedOne and says each result again at the end.
func TestGoesOnAfterARedOne(t *testing.T) {
	do := func(_ context.Context, out io.Writer, command string) error {
		switch command {
		case "green", "weak", "green BREAK=passes", "strong":
			fmt.Fprintf(out, "RESULT {%q:true}\n", command)
			return nil
		case "silent":
			return nil
		case "strong BREAK=x":
			fmt.Fprintln(out, "something is wrong")
		}
		fmt.Fprintf(out, "RESULT {%q:false}\n", command)
		return errors.New("exit status 2")
	}
	given := []proof{
		{name: "green", command: "green"},
		{name: "red", command: "red"},
		{name: "silent", command: "silent"},
		{name: "weak", command: "weak", counter: []counterproof{{"green BREAK=passes", "wrong"}}},
		{name: "mute", command: "weak", counter: []counterproof{{"red BREAK=x", "wrong"}}},
		{name: "strong", command: "strong", counter: []counterproof{{"strong BREAK=x", "something is wrong"}}},
	}
	for i := range given {
		given[i].limit = time.Minute
	}
	var out strings.Builder
	err := inTurn(t.Context(), &out, given, do)
	if err == nil || err.Error() != "red: red, silent, weak, mute" {
		t.Errorf("error %v", err)
	}
	_, summary, _ := strings.Cut(out.String(), "=== summary\n")
	for _, line := range []string{
		`(?m)^ok   green .* RESULT {"green":true}$`, `(?m)^RED  red .* RESULT {"red":false}$`, `(?m)^RED  silent `, `(?m)^RED  weak `,
		`(?m)^ok   strong .* RESULT {"strong":true}$`,
		`(?m)^RESULT {"failed":4,"proofs":6,"red":\["red","silent","weak","mute"\],"seconds":\d+}$`,
	} {
		if !regexp.MustCompile(line).MatchString(summary) {
			t.Errorf("no line like %s in:\n%s", line, summary)
		}
	}
}

// TestProofsAreTargets of the Makefile, and each has a name of its own.
func TestProofsAreTargets(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range all {
		commands := []string{p.command}
		for _, c := range p.counter {
			commands = append(commands, c.command)
		}
		for _, command := range commands {
			target := strings.Fields(command)[0]
			if !regexp.MustCompile(`(?m)^(\S+ )*` + regexp.QuoteMeta(target) + `( \S+)*:`).Match(makefile) {
				t.Errorf("%s: the Makefile has no target %s", p.name, target)
			}
		}
		if seen[p.name] || p.limit == 0 || p.group == "" {
			t.Errorf("%s: its name is taken, or it has neither limit nor group", p.name)
		}
		seen[p.name] = true
	}
}
