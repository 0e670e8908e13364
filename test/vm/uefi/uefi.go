// SPDX-License-Identifier: Apache-2.0

// Package uefi edits the variables of a virtual machine's UEFI firmware while the machine is off:
// the kernel trusts the certificates in the variable db, and nothing but the firmware could write
// it later.
package uefi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Files of Debian's package ovmf.
const (
	// Code is the firmware.
	Code = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	// EmptyVariables is the content of its flash memory for variables, as a machine without any owner
	// has it.
	EmptyVariables = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// GUID as the firmware stores it.
type GUID [16]byte

// Identifiers from the UEFI specification and from EDK II.
var (
	securityDatabase  = mustGUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
	typeX509          = mustGUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
	authenticatedVars = mustGUID("aaf32c78-947b-439a-a180-2e144ec37792")
	owner             = mustGUID("b6e27c1c-7c1d-4f0e-9c5a-6a1f0c0e5a11") // who put a certificate into db; any value will do
)

// Attributes of a variable.
const (
	nonVolatile      uint32 = 0x01
	bootService      uint32 = 0x02
	runtimeAccess    uint32 = 0x04
	timeBasedWriting uint32 = 0x20
)

// Layout of the flash memory: a firmware volume, in it one store of authenticated variables.
const (
	volumeMark         = "_FVH"
	volumeMarkAt       = 40
	volumeHeaderSizeAt = 48
	storeSizeAt        = 16
	storeHeader        = 28
	recordHeader       = 60
	recordStart        = 0x55aa
	recordFree         = 0xffff
	recordValid        = 0x3f
	recordAlign        = 4
)

var le = binary.LittleEndian

// ErrStore says that a content is not that of a variable store, or that it has no room left.
var ErrStore = errors.New("UEFI variable store")

// Variable is one variable.
type Variable struct {
	Name       string
	Vendor     GUID
	Attributes uint32
	Data       []byte
}

// Trust is the variable db with these certificates (DER): the firmware, and a kernel that it
// starts, trust their keys.
func Trust(certificates ...[]byte) Variable {
	v := Variable{Name: "db", Vendor: securityDatabase, Attributes: nonVolatile | bootService | runtimeAccess | timeBasedWriting}
	for _, der := range certificates {
		const listHeader, ownerSize = 28, 16
		v.Data = append(v.Data, typeX509[:]...)
		for _, n := range []int{listHeader + ownerSize + len(der), 0, ownerSize + len(der)} {
			v.Data = le.AppendUint32(v.Data, uint32(n))
		}
		v.Data = append(append(v.Data, owner[:]...), der...)
	}
	return v
}

// Append returns the content of the flash memory with one more variable.
func Append(flash []byte, v Variable) ([]byte, error) {
	have, free, end, err := walk(flash)
	if err != nil {
		return nil, err
	}
	for _, old := range have {
		if old.Name == v.Name && old.Vendor == v.Vendor {
			return nil, fmt.Errorf("%w: %s is there already", ErrStore, v.Name)
		}
	}
	record := encode(v)
	if free+len(record) > end {
		return nil, fmt.Errorf("%w: no room for %d bytes", ErrStore, len(record))
	}
	out := bytes.Clone(flash)
	copy(out[free:], record)
	return out, nil
}

// List returns the valid variables.
func List(flash []byte) ([]Variable, error) {
	have, _, _, err := walk(flash)
	return have, err
}

// walk reads the records. free is where the next one goes, end where the store ends.
func walk(flash []byte) (have []Variable, free, end int, err error) {
	if len(flash) < volumeHeaderSizeAt+2 || string(flash[volumeMarkAt:volumeMarkAt+len(volumeMark)]) != volumeMark {
		return nil, 0, 0, fmt.Errorf("%w: no firmware volume", ErrStore)
	}
	store := int(le.Uint16(flash[volumeHeaderSizeAt:]))
	if store+storeHeader > len(flash) || GUID(flash[store:store+16]) != authenticatedVars {
		return nil, 0, 0, fmt.Errorf("%w: no store of authenticated variables", ErrStore)
	}
	end = store + int(le.Uint32(flash[store+storeSizeAt:]))
	if end > len(flash) {
		return nil, 0, 0, fmt.Errorf("%w: it is longer than the flash memory", ErrStore)
	}
	at := store + storeHeader
	for at+recordHeader <= end && le.Uint16(flash[at:]) != recordFree {
		v, next, err := decode(flash[:end], at)
		if err != nil {
			return nil, 0, 0, err
		}
		if v != nil {
			have = append(have, *v)
		}
		at = next
	}
	return have, at, end, nil
}

// decode reads the record at a place; nil when it is not valid any more.
func decode(flash []byte, at int) (v *Variable, next int, err error) {
	if le.Uint16(flash[at:]) != recordStart {
		return nil, 0, fmt.Errorf("%w: no record at %d", ErrStore, at)
	}
	nameSize, dataSize := int(le.Uint32(flash[at+36:])), int(le.Uint32(flash[at+40:]))
	name := at + recordHeader
	data := name + nameSize
	if data+dataSize > len(flash) {
		return nil, 0, fmt.Errorf("%w: the record at %d is longer than the store", ErrStore, at)
	}
	next = aligned(data + dataSize)
	if flash[at+2] != recordValid {
		return nil, next, nil
	}
	var letters []uint16
	for i := name; i+1 < data && le.Uint16(flash[i:]) != 0; i += 2 {
		letters = append(letters, le.Uint16(flash[i:]))
	}
	return &Variable{
		Name: string(utf16.Decode(letters)), Vendor: GUID(flash[at+44 : at+60]), Attributes: le.Uint32(flash[at+4:]),
		Data: bytes.Clone(flash[data : data+dataSize]),
	}, next, nil
}

func encode(v Variable) []byte {
	name := utf16.Encode([]rune(v.Name + "\x00"))
	record := le.AppendUint16(nil, recordStart)
	record = append(record, recordValid, 0)
	record = le.AppendUint32(record, v.Attributes)
	record = append(record, make([]byte, 8+16+4)...) // how often it was written, when, and by which key
	record = le.AppendUint32(record, uint32(2*len(name)))
	record = le.AppendUint32(record, uint32(len(v.Data)))
	record = append(record, v.Vendor[:]...)
	for _, letter := range name {
		record = le.AppendUint16(record, letter)
	}
	return append(record, v.Data...)
}

func aligned(n int) int { return (n + recordAlign - 1) &^ (recordAlign - 1) }

// mustGUID reads the usual text form, whose first three parts are numbers and so stored with their
// low bytes first.
func mustGUID(text string) GUID {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		panic("uefi: no GUID: " + text)
	}
	g := GUID(b)
	for _, part := range [][]byte{g[0:4], g[4:6], g[6:8]} {
		for i, j := 0, len(part)-1; i < j; i, j = i+1, j-1 {
			part[i], part[j] = part[j], part[i]
		}
	}
	return g
}
