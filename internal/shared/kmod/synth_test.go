// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// The build ID is the identity of a module: equal input gives an equal one, any difference another.
func TestSynthBuildID(t *testing.T) {
	read := func(m synth.Module) string {
		info, err := kmod.Read(m.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return info.BuildID
	}
	base := synth.Module{Name: "a", Vermagic: vermagic}
	seen := map[string]string{}
	for name, change := range map[string]func(*synth.Module){
		"as it is":   func(*synth.Module) {},
		"name":       func(m *synth.Module) { m.Name = "b" },
		"version":    func(m *synth.Module) { m.Version = "2" },
		"vermagic":   func(m *synth.Module) { m.Vermagic = "6.2.0 SMP " },
		"parameters": func(m *synth.Module) { m.Params = []kmod.Param{{Name: "p"}} },
		"machine":    func(m *synth.Module) { m.Machine = synth.MachineAArch64 },
		"symbols":    func(m *synth.Module) { m.Exports = []string{"x"} },
	} {
		module := base
		change(&module)
		id := read(module)
		if len(id) != 40 || id != read(module) {
			t.Errorf("%s: build ID %q", name, id)
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s have one build ID", name, other)
		}
		seen[id] = name
	}
	signed := base
	signed.Signed = true
	if read(signed) != read(base) {
		t.Error("a signature changes the build ID")
	}
	if len(signed.Bytes()) <= len(base.Bytes()) {
		t.Error("no signature is appended")
	}
}

// TestBuildIDIsBounded: a build ID ends in status and journal.
func TestBuildIDIsBounded(t *testing.T) {
	for length, taken := range map[int]bool{8: true, 20: true, 64: true, 65: false, 1 << 20: false} {
		id := strings.Repeat("ab", length)
		info, err := kmod.Read(synth.Module{Name: "a", Vermagic: vermagic, BuildID: id}.Bytes())
		switch {
		case taken && (err != nil || info.BuildID != id):
			t.Errorf("%d bytes: %v", length, err)
		case !taken && !errors.Is(err, kmod.ErrMalformed):
			t.Errorf("%d bytes are taken: %v", length, err)
		}
	}
}
