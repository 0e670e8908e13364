// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/drover-project/drover/"

// products are the programs that run in a cluster or on an admin's machine.
var products = []string{"drover", "drover-agent", "drover-kcall", "drover-operator", "drover-signer"}

// fakes are packages that pretend to be a node, a kernel or a cluster.
var fakes = []string{
	"internal/agent/hollow", "internal/agent/host/fake", "internal/shared/kmod/synth", "internal/testkit", "kit/kittest", "test/",
}

// links looks for fakes among the symbols of each product.
func (h *house) links() error {
	dir, err := os.MkdirTemp("", "house-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, p := range products {
		program := filepath.Join(dir, p)
		build := exec.Command("go", "build", "-o", program, "./cmd/"+p)
		build.Dir = h.root
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", p, err, out)
		}
		symbols, err := exec.Command("go", "tool", "nm", program).Output()
		if err != nil {
			return fmt.Errorf("list the symbols of %s: %w", p, err)
		}
		h.symbols(p, string(symbols))
	}
	return nil
}

// symbols tells each fake once that is in a program, and a program that has none of our symbols.
func (h *house) symbols(program, symbols string) {
	if !strings.Contains(symbols, module) && !strings.Contains(symbols, " main.main") {
		h.tell("cmd/%s: its symbols cannot be read", program)
	}
	for _, fake := range fakes {
		if strings.Contains(symbols, " "+module+fake) {
			h.tell("cmd/%s: links %s", program, fake)
		}
	}
}

var (
	declaredReason = regexp.MustCompile(`(?m)^\t(Reason\w+)\s+= "`)
	usedReason     = regexp.MustCompile(`\b(?:v1beta1|manifest)\.(Reason\w+)`)
)

// reasonsIn notes the reasons that a file declares, and those that it reports. The packages that
// say what reasons mean report none.
func (h *house) reasonsIn(name, content string) {
	if name == "api/kmm/v1beta1/conditions.go" {
		for _, m := range declaredReason.FindAllStringSubmatch(content, -1) {
			h.declared = append(h.declared, m[1])
		}
	}
	explains := strings.HasPrefix(name, "internal/shared/reasons/") || strings.HasPrefix(name, "internal/cli/")
	if strings.HasSuffix(name, "_test.go") || explains || !ofProduct(filepath.ToSlash(filepath.Dir(name))) {
		return
	}
	for _, m := range usedReason.FindAllStringSubmatch(content, -1) {
		h.reported = append(h.reported, m[1])
	}
}

// reasons tells those that no code reports.
func (h *house) reasons() {
	if len(h.declared) == 0 {
		h.tell("api/kmm/v1beta1/conditions.go: no reasons are declared")
	}
	for _, r := range h.declared {
		if !slices.Contains(h.reported, r) {
			h.tell("api/kmm/v1beta1/conditions.go: nothing reports %s", r)
		}
	}
}
