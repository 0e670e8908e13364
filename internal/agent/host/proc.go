// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/words"
)

// parseModules reads /proc/modules: name size refcount users state address.
func parseModules(data string) map[string]State {
	states := map[string]State{"Live": StateLive, "Loading": StateComing}
	modules := map[string]State{}
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) >= 5 {
			modules[fields[0]] = cmp.Or(states[fields[4]], StateGoing) // the rest is unloading
		}
	}
	return modules
}

// gone tells whether a file of /sys is not there. A read of one that went away after it was opened,
// with its module, returns ENODEV (kernfs_fop_read_iter in the kernel's fs/kernfs/file.c).
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// readModule reads a module's facts from /sys/module/<name>, whose files differ between kernels.
func readModule(root, name string, within reader) (Module, bool, error) {
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
		file := filepath.Join(dir, "parameters", p)
		info, err := os.Stat(file)
		if err != nil {
			continue // it vanished
		}
		value, err := within(file, readParameter)
		if errors.Is(err, errSilent) {
			break // a module's parameters have one lock: the others would not be answered either
		}
		if err != nil {
			continue // write-only, or it vanished
		}
		if m.Parameters == nil {
			m.Parameters = map[string]string{}
		}
		m.Parameters[p] = clip(value)
		if !everyoneReads(info) {
			m.Private = append(m.Private, p)
		}
	}
	return m, true, nil
}

// reader reads a file by read, and gives it up with errSilent, as [Prober]'s within does.
type reader func(file string, read func(string) (string, error)) (string, error)

func readParameter(file string) (string, error) {
	value, err := os.ReadFile(file)
	return strings.TrimSuffix(string(value), "\n"), err
}

// everyoneReads is true for a file that any process on the node may read. What another file says is
// told nowhere else either.
func everyoneReads(file os.FileInfo) bool { return file.Mode().Perm()&0o004 != 0 }

// clip bounds what goes into a status.
func clip(value string) string { return words.Fit(value, 256) }

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

const (
	maxLogLines = 10
	maxLogBytes = 1024
)

var (
	// logPrefix is what syslog(2) puts before a line: level, time and, on some kernels, the caller.
	logPrefix = regexp.MustCompile(`^(<\d+>)?(\[ *\d+\.\d+\] ?)?(\[ *[TC]\d+\] ?)?`)
	// address is a pointer, or what the kernel prints in its place.
	address = regexp.MustCompile(`\b(0x)?[0-9a-f]{16}\b|\(____ptrval____\)`)
)

// newText is what was logged after before. The buffer may have wrapped in between.
func newText(before, after string) string {
	if last := lastLine(before); last != "" {
		if i := strings.LastIndex(after, last); i >= 0 {
			return after[i+len(last):]
		}
	}
	return after
}

// newLines are the last lines of newText without what differs each time: timestamps, addresses.
func newLines(before, after string) []string {
	var lines []string
	for line := range strings.Lines(newText(before, after)) {
		line = strings.TrimRight(line, "\n")
		line = line[len(logPrefix.FindString(line)):]
		line = address.ReplaceAllString(strings.ToValidUTF8(line, "?"), "<address>")
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > maxLogLines {
		lines = lines[len(lines)-maxLogLines:]
	}
	for len(lines) > 0 && len(strings.Join(lines, "\n")) > maxLogBytes {
		lines = lines[1:]
	}
	return lines
}

// lastLine is a log's last line with its timestamp, which makes it unique.
func lastLine(log string) string {
	log = strings.TrimRight(log, "\n")
	if log == "" {
		return ""
	}
	return log[strings.LastIndex(log, "\n")+1:] + "\n"
}
