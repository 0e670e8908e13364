// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// parseModules reads /proc/modules: name size refcount users state address.
func parseModules(data string) map[string]State {
	modules := map[string]State{}
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		switch fields[4] {
		case "Live":
			modules[fields[0]] = StateLive
		case "Loading":
			modules[fields[0]] = StateComing
		default: // Unloading
			modules[fields[0]] = StateGoing
		}
	}
	return modules
}

// gone tells whether a file of /sys is not there. A read of one that went away after it was opened,
// with its module, returns ENODEV (kernfs_fop_read_iter in the kernel's fs/kernfs/file.c).
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// readModule reads a module's facts from /sys/module/<name>, whose files differ between kernels.
func readModule(root, name string) (Module, bool, error) {
	dir := filepath.Join(root, name)
	state, err := os.ReadFile(filepath.Join(dir, "initstate"))
	if gone(err) {
		return Module{}, false, nil // not loaded, or built in
	}
	if err != nil {
		return Module{}, false, fmt.Errorf("host: module %s: %w", name, err)
	}
	text := func(file string) string {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	m := Module{
		Name: name, State: State(strings.TrimSpace(string(state))),
		SrcVersion: text("srcversion"), Taint: text("taint"), RefCount: -1,
		Holders: names(filepath.Join(dir, "holders")),
	}
	if n, err := strconv.Atoi(text("refcnt")); err == nil {
		m.RefCount = n
	}
	if note, err := os.ReadFile(filepath.Join(dir, "notes", ".note.gnu.build-id")); err == nil {
		if id, err := kmod.ParseBuildID(note, binary.NativeEndian); err == nil {
			m.BuildID = hex.EncodeToString(id)
		}
	}
	for _, p := range names(filepath.Join(dir, "parameters")) {
		value, err := os.ReadFile(filepath.Join(dir, "parameters", p))
		if err != nil {
			continue // write-only, or it vanished
		}
		if m.Parameters == nil {
			m.Parameters = map[string]string{}
		}
		m.Parameters[p] = clip(strings.TrimSuffix(string(value), "\n"))
	}
	return m, true, nil
}

// clip bounds what goes into a status.
func clip(value string) string {
	const limit = 256
	value = strings.ToValidUTF8(value, "?")
	if len(value) > limit {
		return strings.ToValidUTF8(value[:limit], "")
	}
	return value
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}
