// SPDX-License-Identifier: Apache-2.0

package uefi

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flash is an empty store of so many bytes for records, in a volume with a header of 72 bytes, and
// more memory behind it.
func flash(room int) []byte {
	volume := make([]byte, 72)
	copy(volume[volumeMarkAt:], volumeMark)
	le.PutUint16(volume[volumeHeaderSizeAt:], 72)
	store := append(authenticatedVars[:], 0, 0, 0, 0, 0x5a, 0xfe, 0, 0, 0, 0, 0, 0)
	le.PutUint32(store[storeSizeAt:], uint32(storeHeader+room))
	return append(append(volume, store...), bytes.Repeat([]byte{0xff}, room+100)...)
}

func TestWhatWasAppendedIsThere(t *testing.T) {
	db := Trust([]byte("first certificate"), []byte("second"))
	other := Variable{Name: "Boot0001", Vendor: mustGUID("8be4df61-93ca-11d2-aa0d-00e098032b8c"), Attributes: 7, Data: []byte{1}}
	content := flash(500)
	for _, v := range []Variable{other, db} {
		var err error
		if content, err = Append(content, v); err != nil {
			t.Fatal(err)
		}
	}
	got, err := List(content)
	if diff := cmp.Diff([]Variable{other, db}, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	content[100+2] &= 0x7d // what the firmware does to delete the first
	if got, err = List(content); err != nil || len(got) != 1 || got[0].Name != "db" {
		t.Errorf("after a deletion: %v, error %v", got, err)
	}
}

// TestRecordIsAsTheFirmwareReadsIt has the bytes from the specification and EDK II's headers.
func TestRecordIsAsTheFirmwareReadsIt(t *testing.T) {
	want := "aa553f00" + "27000000" + strings.Repeat("00", 28) + "06000000" + "2e000000" +
		"cbb219d73a3d9645a3bcdad00e67656f" + "640062000000" +
		"a159c0a5e494a74a87b5ab155c2bf072" + "2e000000" + "00000000" + "12000000" + hex.EncodeToString(owner[:]) + "abcd"
	if diff := cmp.Diff(want, hex.EncodeToString(encode(Trust([]byte{0xab, 0xcd})))); diff != "" {
		t.Error(diff)
	}
}

func TestAppendRefuses(t *testing.T) {
	with := func(change func([]byte)) []byte {
		content := flash(200)
		change(content)
		return content
	}
	full, err := Append(flash(200), Trust([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		flash []byte
		says  string
	}{
		"nothing":            {nil, "no firmware volume"},
		"another file":       {bytes.Repeat([]byte{0}, 600), "no firmware volume"},
		"another store":      {with(func(b []byte) { b[72]++ }), "no store of authenticated variables"},
		"a store too long":   {with(func(b []byte) { b[72+storeSizeAt+2] = 1 }), "longer than the flash memory"},
		"junk for a record":  {with(func(b []byte) { b[100] = 0 }), "no record at 100"},
		"a record too long":  {with(func(b []byte) { copy(b[100:], encode(Variable{Data: make([]byte, 500)})) }), "longer than the store"},
		"no room":            {flash(40), "no room"},
		"there already":      {full, "there already"},
		"header without end": {flash(200)[:80], "no store of authenticated variables"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Append(tc.flash, Trust([]byte("certificate")))
			if !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %q", err, tc.says)
			}
		})
	}
}
