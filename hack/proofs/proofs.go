// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// proof is what a target of the Makefile shows.
type proof struct {
	group, name string
	command     string // arguments of make
	limit       time.Duration
	counter     []counterproof
}

// counterproof breaks something on purpose: the command must fail and say so.
type counterproof struct{ command, says string }

var all = []proof{
	// With a C compiler, the race detector watches all of them.
	{group: "tests", name: "test", command: "test", limit: 2 * time.Hour},
	{group: "tests", name: "fuzz", command: "fuzz FUZZTIME=10s", limit: 2 * time.Hour},
	{group: "tests", name: "attacks", command: "attacks BREAKS=all", limit: time.Hour},
	{group: "tests", name: "chart-install", command: "chart-install", limit: time.Hour},
	{group: "tests", name: "chart", command: "chart", limit: time.Hour, counter: []counterproof{
		{"chart BREAK=object", `"equal":false`},
	}},
	{group: "tests", name: "bundle", command: "bundle VERSION=v0.1.0 REGISTRY=registry.example.com", limit: time.Hour, counter: []counterproof{
		{"bundle VERSION=v0.1.0 REGISTRY=registry.example.com BREAK=definition", `"valid":false`},
	}},
	{group: "tests", name: "conformance", command: "conformance", limit: time.Hour, counter: []counterproof{
		{"conformance BREAK=regexp NUMBERS=3", "  3  an invalid regexp is refused                       FAILED"},
	}},
	{group: "tests", name: "docs-test", command: "docs-test", limit: time.Hour, counter: []counterproof{
		{"docs-test BREAK=command PAGES=signing.md", "docs: 1 problems"},
	}},
	{group: "kernel", name: "kmods", command: "kmods", limit: time.Hour, counter: []counterproof{
		{"kmods BREAK=license", "the licence of ptemplate_char_dev is \"Apache 2.0\" instead of GPL"},
	}},
	{group: "kernel", name: "main", command: "e2e-kernel", limit: time.Hour, counter: []counterproof{
		{"e2e-kernel BREAK=image", "FAILED a:"},
	}},
	{group: "kernel", name: "node", command: "e2e-kernel GROUP=node", limit: time.Hour},
	{group: "kernel", name: "disk", command: "e2e-kernel GROUP=disk", limit: time.Hour},
	{group: "kernel", name: "versions", command: "e2e-kernel GROUP=versions", limit: 2 * time.Hour, counter: []counterproof{
		{"e2e-kernel GROUP=release KUBERNETES=1.31 BREAK=mode", "FAILED withoutImageVolumes"},
	}},
	{group: "kernel", name: "selinux", command: "e2e-kernel GROUP=selinux", limit: time.Hour, counter: []counterproof{
		{"e2e-kernel GROUP=selinux BREAK=file", "(EACCES)"},
	}},
	{group: "kernel", name: "dra", command: "e2e-kernel GROUP=dra", limit: time.Hour},
	{group: "kernel", name: "operators-vm", command: "e2e-kernel GROUP=operators", limit: time.Hour},
	{group: "kernel", name: "install", command: "e2e-install", limit: time.Hour, counter: []counterproof{
		{"e2e-install BREAK=unload", "FAILED upgraded"},
	}},
	{group: "kernel", name: "agent", command: "bench-agent", limit: time.Hour},
	{group: "kernel", name: "boot", command: "bench-boot", limit: time.Hour, counter: []counterproof{
		{"bench-boot BREAK=bake", "FAILED baked"},
	}},
	{group: "kernel", name: "privileges", command: "privileges", limit: 2 * time.Hour},
	{group: "build", name: "build", command: "e2e-build", limit: 100 * time.Minute},
	{group: "build", name: "hub", command: "e2e-hub", limit: time.Hour},
	{group: "build", name: "dkms", command: "e2e-dkms", limit: 100 * time.Minute},
	{group: "build", name: "sign", command: "bench-sign", limit: time.Hour, counter: []counterproof{
		{"bench-sign BREAK=hash", "1 modules differ from what sign-file writes"},
	}},
	{group: "modules", name: "graph", command: "graph", limit: time.Hour, counter: []counterproof{
		{"graph BREAK=order", "1 differences on amd64"},
	}},
	{group: "modules", name: "resolve", command: "bench-resolve", limit: time.Hour},
	{group: "operators", name: "operators", command: "e2e-operators", limit: time.Hour},
	{group: "operators", name: "migrate", command: "e2e-migrate", limit: time.Hour, counter: []counterproof{
		{"e2e-migrate BREAK=report", `"leftovers":1,`},
	}},
	{group: "operators", name: "web", command: "e2e-web", limit: time.Hour, counter: []counterproof{
		{"e2e-web BREAK=escape", `"exact":false`},
		{"e2e-web BREAK=scroll", `"narrow":false`},
		{"e2e-web BREAK=contrast", `"contrastDark":false`},
		{"e2e-web BREAK=follow", `"follows":false`},
		{"e2e-web BREAK=label", `"screenReader":false`},
	}},
	{group: "web", name: "site", command: "docs-site", limit: time.Hour, counter: []counterproof{
		{"docs-site BREAK=link", `"brokenLinks":1,`},
		{"docs-site BREAK=field", "undocumented: module spec."},
	}},
	{group: "fleet", name: "groups", command: "e2e", limit: time.Hour},
	{group: "fleet", name: "integration-1.31", command: "integration KUBERNETES=1.31", limit: time.Hour},
	{group: "fleet", name: "integration-1.33", command: "integration KUBERNETES=1.33", limit: time.Hour},
	{group: "fleet", name: "integration-1.36", command: "integration KUBERNETES=1.36", limit: time.Hour},
	{group: "fleet", name: "groups-1.31", command: "e2e KUBERNETES=1.31", limit: time.Hour},
	{group: "fleet", name: "groups-1.33", command: "e2e KUBERNETES=1.33", limit: time.Hour},
	{group: "fleet", name: "conformance-1.31", command: "conformance KUBERNETES=1.31", limit: time.Hour},
	{group: "fleet", name: "conformance-1.33", command: "conformance KUBERNETES=1.33", limit: time.Hour},
	{group: "fleet", name: "bench-hub", command: "bench-hub CLUSTERS=200", limit: time.Hour},
	{group: "fleet", name: "bench-fleet", command: "bench-fleet NODES=500", limit: time.Hour, counter: []counterproof{
		{"bench-fleet NODES=10 BREAK=unload", "1 unloads that nobody asked for"},
	}},
	{group: "fleet", name: "bench-upgrade", command: "bench-upgrade NODES=500", limit: time.Hour},
	{group: "fleet", name: "bench-delete", command: "bench-delete NODES=500", limit: time.Hour},
	{group: "fleet", name: "bench-memory", command: "bench-memory NODES=5000 MODULES=20", limit: time.Hour},
	{group: "tests", name: "memapi-diff", command: "memapi-diff", limit: time.Hour},
	{group: "tests", name: "sim", command: "sim HISTORIES=100000 MINUTES=10", limit: time.Hour},
	{group: "tests", name: "sim-mutations", command: "sim-mutations", limit: 2 * time.Hour},
	{group: "fleet", name: "chaos", command: "chaos NODES=500", limit: time.Hour, counter: []counterproof{
		{"chaos NODES=10 BREAK=unload", "1 unloads that nobody asked for"},
		{"chaos NODES=20 BREAK=limit", "reloads over the limit"},
	}},
	{group: "fleet", name: "soak", command: "soak MINUTES=10", limit: time.Hour, counter: []counterproof{
		{"soak NODES=20 MINUTES=2 BREAK=unload", `"unaskedUnloads":1,`},
		{"soak NODES=20 MINUTES=2 BREAK=leak", "agents.descriptors grows"},
	}},
	{group: "fleet", name: "skew", command: "e2e-skew", limit: time.Hour, counter: []counterproof{
		{"e2e-skew BREAK=unload", `"unaskedUnloads":1,`},
		{"e2e-skew BREAK=field", `"fieldsLost":1,`},
	}},
	{group: "fleet", name: "visit", command: "e2e-visit", limit: time.Hour, counter: []counterproof{
		{"e2e-visit BREAK=budget", "nodes were drained"},
	}},
	{group: "fleet", name: "alerts", command: "alerts", limit: time.Hour, counter: []counterproof{
		{"alerts QUIET=1m BREAK=rule", "RED DroverImageMissing"},
	}},
}

// choose keeps the proofs whose name is in only and whose group is in groups. An empty list is all
// of them.
func choose(from []proof, only, groups string) ([]proof, error) {
	names, wanted := list(only), list(groups)
	for _, n := range names {
		if !slices.ContainsFunc(from, func(p proof) bool { return p.name == n }) {
			return nil, fmt.Errorf("there is no proof %q", n)
		}
	}
	for _, g := range wanted {
		if !slices.ContainsFunc(from, func(p proof) bool { return p.group == g }) {
			return nil, fmt.Errorf("there is no group %q", g)
		}
	}
	var chosen []proof
	for _, p := range from {
		if (len(names) == 0 || slices.Contains(names, p.name)) && (len(wanted) == 0 || slices.Contains(wanted, p.group)) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no proof of the group %s is called %s", groups, only)
	}
	return chosen, nil
}

func list(words string) []string {
	return strings.FieldsFunc(words, func(r rune) bool { return r == ',' || r == ' ' })
}
