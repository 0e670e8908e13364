// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// TestMain lets this program be an agent: "take" waits for the lock, "try" takes it if it is free.
// Either says what it got, and then that it gave it back: when another waits, or, "keep", when its
// input ends.
func TestMain(m *testing.M) {
	if how := os.Getenv("BOOT_TEST_AGENT"); how != "" {
		if err := beAgent(how, os.Getenv("BOOT_TEST_DIR")); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beAgent(how, dir string) error {
	verb, manner, _ := strings.Cut(how, " ")
	var lock *Lock
	var err error
	if verb == "take" {
		lock, err = Take(context.Background(), dir, how, clock.RealClock{})
	} else {
		lock, err = TryTake(dir, how)
	}
	if err != nil {
		return err
	}
	if lock == nil {
		fmt.Println("none")
		return nil
	}
	alone, err := os.OpenFile(filepath.Join(dir, "working"), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err // another one works
	}
	fmt.Println("working")
	if manner == "keep" {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	} else {
		for wanted := false; !wanted; {
			if wanted, err = lock.Wanted(); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(alone.Close(), os.Remove(alone.Name())); err != nil {
		return err
	}
	fmt.Println("done")
	return lock.Release()
}

// agentProcess is one that beAgent makes.
type agentProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	input func() error
	lines *bufio.Scanner
}

func newAgent(t *testing.T, dir, how string) *agentProcess {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "BOOT_TEST_AGENT="+how, "BOOT_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return &agentProcess{t: t, cmd: cmd, input: in.Close, lines: bufio.NewScanner(out)}
}

// says waits for the next line.
func (a *agentProcess) says(want string) {
	a.t.Helper()
	got := "nothing more"
	if a.lines.Scan() {
		got = a.lines.Text()
	}
	if got != want {
		a.t.Fatalf("an agent says %q, want %q", got, want)
	}
}

// TestOneWorksAtATime with real processes: in each case, the second gets the lock only after the
// first has ended its work.
func TestOneWorksAtATime(t *testing.T) {
	t.Run("the static pod's gives way", func(t *testing.T) {
		dir := t.TempDir()
		static := newAgent(t, dir, "try yield")
		static.says("working")
		set := newAgent(t, dir, "take keep")
		static.says("done")
		set.says("working")
		late := newAgent(t, dir, "try yield")
		late.says("none")
		_ = set.input()
		set.says("done")
	})
	t.Run("an upgrade waits for the old one", func(t *testing.T) {
		dir := t.TempDir()
		old := newAgent(t, dir, "take keep")
		old.says("working")
		next := newAgent(t, dir, "take keep")
		awaitWanted(t, dir)
		_ = old.input()
		old.says("done")
		next.says("working")
		_ = next.input()
		next.says("done")
	})
	t.Run("nobody works before one that waits", func(t *testing.T) {
		dir := t.TempDir()
		old := newAgent(t, dir, "take keep")
		old.says("working")
		next := newAgent(t, dir, "take keep")
		awaitWanted(t, dir)
		newAgent(t, dir, "try yield").says("none")
		_ = old.input()
		old.says("done")
		next.says("working")
		_ = next.input()
		next.says("done")
	})
	t.Run("a killed one leaves no lock", func(t *testing.T) {
		dir := t.TempDir()
		first := newAgent(t, dir, "take keep")
		first.says("working")
		if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = first.cmd.Wait()
		if err := os.Remove(filepath.Join(dir, "working")); err != nil {
			t.Fatal(err)
		}
		second := newAgent(t, dir, "try keep")
		second.says("working")
		_ = second.input()
		second.says("done")
	})
}

func awaitWanted(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		wanted, err := (&Lock{dir: dir}).Wanted()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nobody waits: %v", err)
		}
		if wanted {
			return
		}
	}
}

// TestWaitEnds with its context.
func TestWaitEnds(t *testing.T) {
	dir := t.TempDir()
	lock, err := TryTake(dir, "first")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	if got := holder(filepath.Join(dir, LockFile)); !strings.Contains(got, "first, process ") {
		t.Errorf("the holder is %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*lockPoll)
	defer cancel()
	if _, err := Take(ctx, dir, "second", clock.RealClock{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ended with %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestWhatStandsInTheLocksPlace does not keep the agents from working.
func TestWhatStandsInTheLocksPlace(t *testing.T) {
	for name, put := range map[string]func(name string) error{
		"a link":      func(name string) error { return os.Symlink("/etc/passwd", name) },
		"a directory": func(name string) error { return os.MkdirAll(filepath.Join(name, "x"), 0o700) },
		"a pipe":      func(name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(put(filepath.Join(dir, LockFile)), put(filepath.Join(dir, wantedFile))); err != nil {
				t.Fatal(err)
			}
			lock, err := Take(t.Context(), dir, "first", clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			if other, err := TryTake(dir, "second"); other != nil || err != nil {
				t.Errorf("a second one: %v, %v", other, err)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}
