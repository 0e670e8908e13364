// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLeftBehind says that modprobe did not end before its deadline; it is still running.
var ErrLeftBehind = errors.New("modprobe did not end in time and was left behind")

// Error is modprobe's failure.
type Error struct {
	// Module that it could not load or remove, as far as it says.
	Module string
	// Errno is the symbolic name of what the kernel answered; empty when modprobe did not get so far, or said nothing known.
	Errno string
	// Said is what the program wrote that tells of the failure, or its end.
	Said string
	// Killed: the program did not end by itself; an oops kills it.
	Killed bool
}

func (e *Error) Error() string { return "modprobe: " + e.Said }

// Runner runs modprobe in a layout of its own, one call per layout at a time.
type Runner struct {
	// Stage is where.
	Stage Stage
	// Deadline of one call.
	Deadline time.Duration
	// Returned is called when a call that was left behind ends after all. May be nil.
	Returned func()

	mu   sync.Mutex
	left map[string]bool // roots that a modprobe which was left behind may still read
}

// Run makes one call and waits for its end, at most until the deadline. The program is not killed: a task in the kernel cannot be, and one
// that could be would be cut off in the middle. The error is an *Error when modprobe failed.
func (r *Runner) Run(args []string, c Content) error {
	root := r.Stage.Root(c.Dir)
	if r.isLeft(root) {
		return ErrLeftBehind
	}
	if err := r.Stage.Prepare(c); err != nil {
		return err
	}
	cmd := exec.Command(r.Stage.Kmod)
	cmd.Args = append([]string{"modprobe"}, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // the words of failures are read
	if options := r.Stage.Options(c); options != "" {
		cmd.Env = append(cmd.Env, "MODPROBE_OPTIONS="+options)
	}
	// What is meant for the agent's group, such as an interrupt, does not reach a load.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &limited{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return errors.Join(&Error{Said: err.Error()}, r.Stage.Remove(c.Dir))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(r.Deadline)
	defer timer.Stop()
	select {
	case err := <-ended:
		return errors.Join(failure(err, said.String()), r.Stage.Remove(c.Dir))
	case <-timer.C:
		r.leave(root, ended)
		return ErrLeftBehind
	}
}

// Running tells whether a call that was left behind has not ended.
func (r *Runner) Running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.left) > 0
}

func (r *Runner) isLeft(root string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left[root]
}

func (r *Runner) leave(root string, ended <-chan error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[string]bool{}
	}
	r.left[root] = true
	go func() {
		<-ended //nolint:errcheck // nobody waits for its answer any more
		r.mu.Lock()
		delete(r.left, root)
		r.mu.Unlock()
		if r.Returned != nil {
			r.Returned()
		}
	}()
}

var (
	// couldNot is how modprobe reports what the kernel answered.
	couldNot = regexp.MustCompile(`could not (?:insert|remove) '([^']+)': (.+)`)
	// isUsed is how it reports a module that it does not even try to remove.
	isUsed = regexp.MustCompile(`Module (\S+) is in use`)
)

// words of modprobe's own for an errno.
var words = map[string]string{
	"Module already in kernel":                                   "EEXIST",
	"Unknown symbol in module, or unknown parameter (see dmesg)": "ENOENT",
}

// failure reads what the program said. ended is nil when it ended well.
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

// complaints are the lines in which modprobe speaks itself, without those about what it did well.
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

// errnoOf turns the C library's words into the errno's name. Go's own differ in the first letter only.
func errnoOf(text string) string {
	if name, ok := words[text]; ok {
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

// maxSaid bounds what is kept of the program's words, and clip what goes into a message.
const (
	maxSaid = 64 << 10
	maxClip = 512
)

func clip(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > maxClip {
		text = strings.ToValidUTF8(text[:maxClip], "") + "…"
	}
	return text
}

// limited keeps the beginning of what is written to it.
type limited struct{ kept []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), maxSaid-len(l.kept))]...)
	return len(p), nil
}

func (l *limited) String() string { return string(l.kept) }
