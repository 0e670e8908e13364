// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

// links looks for fakes among the packages that each product is linked from.
func (h *house) links() error {
	for _, p := range products {
		list := exec.Command("go", "list", "-deps", "./cmd/"+p)
		list.Dir = h.root
		packages, err := list.Output()
		if err != nil {
			return fmt.Errorf("list the packages of %s: %w", p, err)
		}
		h.linked(p, strings.Fields(string(packages)))
	}
	return nil
}

// linked tells each fake once that is in a program, and a program whose packages lack itself.
func (h *house) linked(program string, packages []string) {
	if !slices.Contains(packages, module+"cmd/"+program) {
		h.tell("cmd/%s: its packages cannot be read", program)
	}
	for _, fake := range fakes {
		if slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p+"/", module+strings.TrimSuffix(fake, "/")+"/") }) {
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
