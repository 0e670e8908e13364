// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"testing"
)

func TestVariablesSetFlags(t *testing.T) {
	saved := flag.CommandLine
	t.Cleanup(func() { flag.CommandLine = saved })
	flag.CommandLine = flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	resource := flag.String("resource", "drover.dev/sample", "")
	permissions := flag.String("permissions", "r", "")
	cdi := flag.Bool("cdi", true, "")
	t.Setenv("RESOURCE_NAME", "example.com/ptemplate")
	t.Setenv("DEVICE_PERMISSIONS", "rw")
	t.Setenv("CDI", "false")
	if err := fromEnvironment(); err != nil {
		t.Fatal(err)
	}
	if err := flag.CommandLine.Parse([]string{"--permissions=w"}); err != nil {
		t.Fatal(err)
	}
	if *resource != "example.com/ptemplate" || *permissions != "w" || *cdi {
		t.Errorf("resource %q, permissions %q, cdi %t", *resource, *permissions, *cdi)
	}
	t.Setenv("CDI", "perhaps")
	if err := fromEnvironment(); err == nil {
		t.Error("CDI=perhaps is taken")
	}
}
