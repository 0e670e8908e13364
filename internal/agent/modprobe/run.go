// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/shared/words"
)

// Error is modprobe's failure.
type Error struct {
	Module string // the one that it could not load or remove, as far as it says
	Errno  string // the symbolic name of the kernel's answer; empty if modprobe did not tell one
	Said   string // what the program wrote of the failure, or how it ended
	Killed bool   // the program did not end by itself; an oops kills it
}

func (e *Error) Error() string { return "modprobe: " + e.Said }

// Runner runs modprobe, one call per layout at a time.
type Runner struct {
	Stage Stage
	kcall.Children
}

// Run makes one call and waits for its end. The error is an *Error when modprobe failed, and
// kcall.ErrNotStarted when the node lacked what it takes to run it. It is kcall.ErrLeftBehind when
// it, or an earlier call that reads the same layout, is still running.
func (r *Runner) Run(args []string, c Content) error {
	root := r.Stage.Root(c.Dir)
	if r.Left(root) {
		return kcall.ErrLeftBehind
	}
	if err := r.Stage.Prepare(c); kcall.Lacking(err) {
		return fmt.Errorf("%w: %w", kcall.ErrNotStarted, err)
	} else if err != nil {
		return err
	}
	cmd := exec.Command(r.Stage.Kmod)
	cmd.Args = append([]string{"modprobe"}, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // the words of failures are read
	if options := r.Stage.Options(c); options != "" {
		cmd.Env = append(cmd.Env, "MODPROBE_OPTIONS="+options)
	}
	// An interrupt of the agent's process group must not reach a load.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &kcall.Limited{Most: maxSaid}
	cmd.Stdout, cmd.Stderr = said, said
	r.Stage.Watchdog.Alive()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("modprobe: %w: %w", kcall.ErrNotStarted, err), r.Stage.Remove(c.Dir))
	}
	ended := r.Wait(cmd, root)
	if errors.Is(ended, kcall.ErrLeftBehind) {
		return ended
	}
	return errors.Join(failure(ended, string(said.Kept)), r.Stage.Remove(c.Dir))
}

var (
	// couldNot is how modprobe reports what the kernel answered.
	couldNot = regexp.MustCompile(`could not (?:insert|remove) '([^']+)': (.+)`)
	// isUsed is how it reports a module that it does not even try to remove.
	isUsed = regexp.MustCompile(`Module (\S+) is in use`)
)

// ownWords are modprobe's own for an errno.
var ownWords = map[string]string{
	"Module already in kernel":                                   "EEXIST",
	"Unknown symbol in module, or unknown parameter (see dmesg)": "ENOENT",
}

// failure reads what the program said; nil if it ended well.
func failure(ended error, said string) error {
	if ended == nil {
		return nil
	}
	var exit *exec.ExitError
	e := &Error{Said: clip(complaints(said)), Killed: errors.As(ended, &exit) && exit.ExitCode() < 0}
	if e.Said == "" {
		e.Said = ended.Error()
	}
	if m := couldNot.FindStringSubmatch(said); m != nil {
		e.Module, e.Errno = m[1], errnoOf(strings.TrimSpace(m[2]))
	} else if m := isUsed.FindStringSubmatch(said); m != nil {
		e.Module, e.Errno = m[1], "EBUSY"
	}
	return e
}

// complaints are modprobe's own lines, without those about what it did well.
func complaints(said string) string {
	var lines []string
	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "modprobe: "); ok {
			lines = append(lines, rest)
		}
	}
	if lines == nil {
		return strings.TrimSpace(said)
	}
	return strings.Join(lines, "; ")
}

// errnoOf turns the C library's words into the errno's name. Go's differ in the first letter only.
func errnoOf(text string) string {
	if name, ok := ownWords[text]; ok {
		return name
	}
	const last = 133 // EHWPOISON, the highest of Linux
	for n := syscall.Errno(1); n <= last; n++ {
		if name := unix.ErrnoName(n); name != "" && strings.EqualFold(n.Error(), text) {
			return name
		}
	}
	return ""
}

const (
	maxSaid = 64 << 10 // of the program's words, bytes
	maxClip = 512      // of what goes into a message, bytes
)

func clip(text string) string {
	return words.Cut(strings.TrimSpace(text), maxClip)
}
