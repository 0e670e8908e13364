// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// parseSymbols reads what a kernel exports: a Module.symvers (CRC, symbol, where, how) or a
// System.map (address, kind, symbol), which has no CRCs.
func parseSymbols(in io.Reader) (map[string]kmod.Symbol, error) {
	found := map[string]kmod.Symbol{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "0x"):
			crc, err := strconv.ParseUint(fields[0], 0, 32)
			if err != nil {
				return nil, fmt.Errorf("read the CRC of %s: %w", fields[1], err)
			}
			// A kernel without CONFIG_MODVERSIONS writes zeros.
			found[fields[1]] = kmod.Symbol{Name: fields[1], CRC: uint32(crc), HasCRC: crc != 0}
		case len(fields) == 3:
			if exported, ok := strings.CutPrefix(fields[2], "__ksymtab_"); ok {
				found[exported] = kmod.Symbol{Name: exported}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the kernel's symbols: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the file names no exported symbol: it is neither a Module.symvers nor a System.map")
	}
	return found, nil
}
