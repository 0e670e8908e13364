// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

func versioned(name string, crc uint32) kmod.Symbol {
	return kmod.Symbol{Name: name, CRC: crc, HasCRC: true}
}

func optional(s kmod.Symbol) kmod.Symbol {
	s.Optional = true
	return s
}

func TestReadDetailsSymbols(t *testing.T) {
	crcs := map[string]uint32{"module_layout": 1, "printk": 2, "maybe": 3, "mine": 0xfffffff4}
	long := strings.Repeat("long_", 60) // too long for the old table of CRCs
	cases := map[string]struct {
		given            synth.Module
		imports, exports []kmod.Symbol
	}{
		"nothing": {},
		"without CRCs": {
			given:   synth.Module{Exports: []string{"mine"}, Imports: []string{"printk"}, WeakImports: []string{"maybe"}},
			imports: []kmod.Symbol{{Name: "printk"}, {Name: "maybe", Optional: true}},
			exports: []kmod.Symbol{{Name: "mine"}},
		},
		"with CRCs": {
			given: synth.Module{Exports: []string{"mine"}, Imports: []string{"printk"}, WeakImports: []string{"maybe"}, ModVersions: true,
				CRCs: crcs},
			imports: []kmod.Symbol{versioned("printk", 2), optional(versioned("maybe", 3)), optional(versioned("module_layout", 1))},
			exports: []kmod.Symbol{versioned("mine", 0xfffffff4)},
		},
		"what linkers leave behind": {
			given:   synth.Module{Imports: []string{"_GLOBAL_OFFSET_TABLE_"}},
			imports: []kmod.Symbol{{Name: "_GLOBAL_OFFSET_TABLE_", Optional: true}},
		},
		"extended CRCs": {
			given: synth.Module{
				Imports: []string{long}, ModVersions: true, ExtendedModVersions: true,
				CRCs: map[string]uint32{"module_layout": 1, long: 5},
			},
			imports: []kmod.Symbol{versioned(long, 5), optional(versioned("module_layout", 1))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.given.Name = "a"
			details, err := kmod.ReadDetails(tc.given.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.imports, details.Imports); diff != "" {
				t.Errorf("imports (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.exports, details.Exports); diff != "" {
				t.Errorf("exports (-want +got):\n%s", diff)
			}
		})
	}
}

// Since Linux 5.19 a __crc_ symbol points to the CRC instead of being it.
func TestReadDetailsCRCInSection(t *testing.T) {
	file := synth.Module{Name: "a", Exports: []string{"mine"}, ModVersions: true, CRCs: map[string]uint32{"mine": 0xabcdef01}}.Bytes()
	// The symbol's entry: section 0xfff1 (absolute), and the CRC as the value.
	entry := bytes.Index(file, []byte("\xf1\xff\x01\xef\xcd\xab"))
	if entry < 0 {
		t.Fatal("the symbol is not where it should be")
	}
	for at, want := range map[uint64]kmod.Symbol{
		8:       versioned("mine", binary.LittleEndian.Uint32([]byte("GPL\x00"))), // section 1 is .modinfo: "license=GPL"
		1 << 40: {Name: "mine"},
	} {
		changed := bytes.Clone(file)
		binary.LittleEndian.PutUint16(changed[entry:], 1)
		binary.LittleEndian.PutUint64(changed[entry+2:], at)
		details, err := kmod.ReadDetails(changed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]kmod.Symbol{want}, details.Exports); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", at, diff)
		}
	}
}

func TestReadDetailsFile(t *testing.T) {
	fsys := fstest.MapFS{"a.ko.zst": {Data: compressed(t, "zst", full().Bytes())}, "b.ko": {Data: []byte("no module")}}
	details, err := kmod.ReadDetailsFile(fsys, "a.ko.zst")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullInfo(), details.Info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := kmod.ReadDetailsFile(fsys, "b.ko"); !errors.Is(err, kmod.ErrMalformed) || !strings.HasPrefix(err.Error(), "b.ko: ") {
		t.Errorf("error %v", err)
	}
	if _, err := kmod.ReadDetailsFile(fsys, "c.ko"); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestReadDetailsMalformed(t *testing.T) {
	module := full()
	module.ExtendedModVersions = true
	good := module.Bytes()
	symbol := bytes.Index(good, []byte("\x10\x00\xf1\xff")) - 4 // the entry of __crc_my_export starts with its name
	for name, content := range map[string][]byte{
		"no module":           []byte("no module"),
		"symbol name outside": patch(good, symbol, "\xff\xff\xff\x7f"),
		"fewer names than CRCs": bytes.Replace(good, []byte("module_layout\x00their_export\x00"), []byte("module_layout\x00their_exportX"),
			1),
		"name in the table has no end": bytes.ReplaceAll(withoutExtended(good), append([]byte("module_layout"), make([]byte, 43)...),
			bytes.Repeat([]byte("x"), 56)),
	} {
		t.Run(name, func(t *testing.T) {
			if details, err := kmod.ReadDetails(content); !errors.Is(err, kmod.ErrMalformed) {
				t.Errorf("got %+v, error %v", details, err)
			}
		})
	}
}

func patch(content []byte, at int, value string) []byte {
	out := bytes.Clone(content)
	copy(out[at:], value)
	return out
}

func withoutExtended(content []byte) []byte {
	return bytes.ReplaceAll(content, []byte("__version_ext"), []byte("__version_XXX"))
}

func FuzzReadDetails(f *testing.F) {
	for _, extended := range []bool{false, true} {
		module := full()
		module.ExtendedModVersions = extended
		f.Add(module.Bytes())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		details, err := kmod.ReadDetails(content)
		if (details == nil) == (err == nil) {
			t.Errorf("details %v, error %v", details, err)
		}
		if err != nil && !errors.Is(err, kmod.ErrMalformed) && !errors.Is(err, kmod.ErrTooLarge) {
			t.Errorf("error %v is of no known kind", err)
		}
	})
}
