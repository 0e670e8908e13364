// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"testing"
)

// TestMain lets the test's own program be the busy loop, as the command is its own.
func TestMain(m *testing.M) {
	if os.Getenv(busyVariable) != "" {
		beBusy(os.Stdin)
	}
	os.Exit(m.Run())
}

func TestBusyLoopsEndWithTheirInput(t *testing.T) {
	stop, err := busyLoop()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Errorf("the loop ended with %v", err)
	}
}

// TestUnderLoadAllTestsRun: Go keeps what passed, and three runs in a row would be one.
func TestUnderLoadAllTestsRun(t *testing.T) {
	for load, want := range map[string]bool{"": false, "4": true} {
		if got := slices.Contains(arguments(load, "", "", ""), "-count=1"); got != want {
			t.Errorf("LOAD=%s: %v", load, arguments(load, "", "", ""))
		}
	}
}

func TestLoadIsANumber(t *testing.T) {
	cases := map[string]struct {
		given string
		fails bool
	}{
		"none":         {},
		"0":            {given: "0"},
		"two":          {given: "2"},
		"a word":       {given: "four", fails: true},
		"less than no": {given: "-1", fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ran := false
			err := underLoad(tc.given, func() error { ran = true; return nil })
			if (err != nil) != tc.fails || ran == tc.fails {
				t.Errorf("ran %v, error %v", ran, err)
			}
		})
	}
}
