// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"fmt"
	"strconv"
	"testing"
)

// listCPIO reads a newc archive back: mode, name and size per entry.
func listCPIO(t *testing.T, archive []byte) []string {
	t.Helper()
	field := func(header []byte, index int) int {
		value, err := strconv.ParseInt(string(header[6+8*index:14+8*index]), 16, 64)
		if err != nil {
			t.Fatalf("field %d: %v", index, err)
		}
		return int(value)
	}
	align := func(n int) int { return (n + 3) &^ 3 }
	var entries []string
	for offset := 0; offset < len(archive); {
		header := archive[offset : offset+110]
		if string(header[:6]) != "070701" {
			t.Fatalf("no header at %d", offset)
		}
		size, nameSize := field(header, 6), field(header, 11)
		name := string(archive[offset+110 : offset+110+nameSize-1])
		entries = append(entries, fmt.Sprintf("%o %s %d", field(header, 1), name, size))
		offset = align(align(offset+110+nameSize) + size)
	}
	return entries
}
