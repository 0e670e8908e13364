// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"
)

// FuzzSymbols: a symbol is one that the file names.
func FuzzSymbols(f *testing.F) {
	f.Add("0x12345678\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n0x00000000\tx\tvmlinux\tEXPORT_SYMBOL_GPL\n")
	f.Add("ffffffff81000000 r __ksymtab_printk\nffffffff81000000 T _text\n")
	f.Add("0xzz a b c\n")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := parseSymbols(strings.NewReader(text))
		if (len(found) == 0) == (err == nil) {
			t.Errorf("%d symbols, %v", len(found), err)
		}
		for name, s := range found {
			if s.Name != name || !strings.Contains(text, name) || s.HasCRC != (s.CRC != 0) {
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}
