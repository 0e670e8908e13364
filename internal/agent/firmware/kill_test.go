// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	killAt  = "FIRMWARE_TEST_KILL_AT"
	killDir = "FIRMWARE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(killAt); at != "" {
		if err := victim(os.Getenv(killDir), at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// script is a life of a node: two owners that share a file, one of which changes its version; the
// host has a file of its own among them.
var (
	v1     = files{"shared": "s", "a/x": "1", "a/old": "o", "host": "host's own"}
	v2     = files{"shared": "s", "a/x": "two", "b/new": "n", "host": "host's own"}
	other  = files{"shared": "s", "b/deep/y": "y"}
	script = []struct {
		owner string
		add   files    // nil: remove
		there []string // whatever happens in between
		ahead bool     // add is only prepared
	}{
		{owner: "ns/a", add: v1},
		{owner: "ns/b", add: other, there: []string{"shared", "a/x", "a/old"}},
		{owner: "ns/a", add: v2, there: []string{"shared", "b/deep/y", "a/x", "a/old"}, ahead: true},
		{owner: "ns/a", add: v2, there: []string{"shared", "b/deep/y", "a/x"}},
		{owner: "ns/b", there: []string{"shared", "a/x", "b/new"}},
		{owner: "ns/a"},
	}
)

// play runs the script from the beginning.
func play(n *node, step func(act int, step string)) error {
	stage, err := firmware.Open(n.opt)
	if err != nil {
		return err
	}
	for i, s := range script {
		stage.OnStep(func(name string) { step(i, name) })
		switch {
		case s.add == nil:
			err = stage.Remove(s.owner)
		case s.ahead:
			err = n.addTo(stage.Prepare, s.owner, s.add)
		default:
			err = n.addTo(stage.Add, s.owner, s.add)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addTo stages from a delivery below the node's directory, so that a killed process leaves nothing
// elsewhere.
func (n *node) addTo(add func(string, fs.FS) error, owner string, all files) error {
	dir := filepath.Join(n.dir, "delivery")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range all {
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	return add(owner, os.DirFS(dir))
}

// victim plays until the step with that number and kills itself there.
func victim(dir, at string) error {
	left, err := strconv.Atoi(at)
	if err != nil {
		return err
	}
	n := &node{dir: dir, path: parameter(filepath.Join(dir, "path"))}
	n.opt = firmware.Options{
		HostRoot: filepath.Join(dir, "host"), StateDir: filepath.Join(dir, "state"), BootID: bootA, SearchPath: n.path, Sync: statefile.NoSync,
	}
	return play(n, func(act int, step string) {
		if left--; left == 0 {
			fmt.Println(act, step)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // our own process: it cannot fail
			select {}
		}
	})
}

// killed runs a victim; done is true when the script has fewer steps.
func (n *node) killed(at int) (step string, done bool) {
	n.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", killAt, at), killDir+"="+n.dir)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", true
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL: //nolint:errcheck // it is one on Linux
		return strings.TrimSpace(out.String()), false
	}
	n.t.Fatalf("victim at %d: %v: %s", at, err, problem.String())
	return "", false
}

// dies is killed within this process.
func (n *node) dies(at int) (step string, done bool) {
	n.t.Helper()
	step = stopped(func(stop func(string)) {
		n.must(play(n, func(act int, step string) {
			if at--; at == 0 {
				stop(fmt.Sprint(act, " ", step))
			}
		}))
	})
	return step, step == ""
}

// stopped runs do until it calls stop, and returns what it says there.
func stopped(do func(stop func(string))) (step string) {
	type death struct{ step string }
	defer func() {
		switch d := recover().(type) {
		case nil:
		case death:
			step = d.step
		default:
			panic(d)
		}
	}()
	do(func(step string) { panic(death{step}) })
	return ""
}

func TestKilledAtEveryStep(t *testing.T) {
	recoveries := map[string]func(n *node) error{
		"the same again": func(n *node) error { return play(n, func(int, string) {}) },
		"all gone":       func(n *node) error { return n.start().Retain(nil) },
		"back to the first version": func(n *node) error {
			return errors.Join(n.addTo(n.start().Add, "ns/a", v1), n.holds(v1), n.Retain([]string{"ns/a"}), n.holds(v1), n.Remove("ns/a"))
		},
		"ledger lost": func(n *node) error {
			if err := os.Remove(filepath.Join(n.opt.StateDir, "firmware.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return errors.Join(n.addTo(n.start().Add, "ns/a", v2), n.Retain([]string{"ns/a"}), n.holds(v2), n.Remove("ns/a"))
		},
	}
	steps := 0
	for name, goOn := range recoveries {
		t.Run(name, func(t *testing.T) {
			steps = 0
			for at := 1; ; at++ {
				n := nodeAt(t, filepath.Join(t.TempDir(), strconv.Itoa(at))).put(ours, files{"host": "host's own", "a/host": "there before"})
				// A process of its own is killed now and then, for time's sake; a panic stops at the same
				// places.
				step, done := "", false
				if name == "the same again" && at%10 == 0 {
					step, done = n.killed(at)
				} else {
					step, done = n.dies(at)
				}
				if done {
					break
				}
				steps++
				n.whole(step)
				if err := goOn(n); err != nil {
					t.Fatalf("killed before step %d (%s): %v", at, step, err)
				}
				n.clean(fmt.Sprintf("killed before step %d (%s)", at, step), name == "ledger lost")
			}
		})
	}
	t.Logf("%d steps, %d ways to go on", steps, len(recoveries))
}

// whole fails the test when a file is not one that somebody staged completely, or one is missing
// that is needed.
func (n *node) whole(step string) {
	n.t.Helper()
	got := n.seen(ours)
	act, err := strconv.Atoi(step[:1])
	n.must(err)
	for _, name := range script[act].there {
		if _, ok := got[name]; !ok {
			n.t.Errorf("killed before %s: %s is missing", step, name)
		}
	}
	for name, content := range got {
		if strings.HasSuffix(name, "/") {
			continue
		}
		switch content {
		case v1[name], v2[name], other[name], "there before":
		default:
			n.t.Errorf("killed before %s: %s has %q", step, name, content)
		}
	}
}

// holds tells whether all those files are there.
func (n *node) holds(want files) error {
	got := n.seen(ours)
	for name, content := range want {
		if got[name] != content {
			return fmt.Errorf("%s has %q, want %q", name, got[name], content)
		}
	}
	return nil
}

// clean fails the test unless only the host's own is left. Without the ledger nobody knows who made
// a directory, nor what the search path was before.
func (n *node) clean(when string, lost bool) {
	n.t.Helper()
	got := n.see(ours)
	if lost {
		for name := range got {
			if strings.HasSuffix(name, "/") {
				delete(got, name)
			}
		}
	}
	if diff := cmp.Diff(files{"host": "host's own", "a/host": "there before"}, got); diff != "" {
		n.t.Fatalf("%s (-want +got):\n%s", when, diff)
	}
	if path := n.kernel(); path != "" && !lost {
		n.t.Fatalf("%s: search path %q", when, path)
	}
}

// A process that dies in a directory it has not used before must be cleaned up after there too.
func TestKilledInAnAdministratorsDirectory(t *testing.T) {
	for at := 1; ; at++ {
		n := newNode(t).put(admin, files{"own": "own"}).start()
		n.must(n.add("ns/a", files{"x": "x"}))
		n.must(n.path.SetFirmwarePath(admin))
		left := at
		step := stopped(func(stop func(string)) {
			n.OnStep(func(step string) {
				if left--; left == 0 {
					stop(step)
				}
			})
			n.must(n.add("ns/a", files{"v/x": "x"}))
		})
		if step == "" {
			break
		}
		n.must(n.start().Retain(nil))
		if diff := cmp.Diff([]files{{"own": "own"}, {}}, []files{n.see(admin), n.see(ours)}); diff != "" || n.kernel() != admin {
			t.Fatalf("died at step %d, search path %q (-want +got):\n%s", at, n.kernel(), diff)
		}
	}
}

func TestReaderNeverSeesHalfAFile(t *testing.T) {
	n := newNode(t).start()
	const size = 1 << 20
	contents := []files{{"v/x": strings.Repeat("a", size)}, {"v/x": strings.Repeat("b", size+1)}}
	stop, result := make(chan struct{}), make(chan error, 1)
	reads := 0
	go func() {
		for {
			select {
			case <-stop:
				result <- nil
				return
			default:
			}
			data, err := os.ReadFile(n.host(ours, "v/x"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || string(data) != contents[0]["v/x"] && string(data) != contents[1]["v/x"] {
				result <- fmt.Errorf("read %d bytes: %w", len(data), err)
				return
			}
			reads++
		}
	}()
	for i := range 40 {
		n.must(n.add("ns/a", contents[i%2]))
		if i%5 == 4 {
			n.must(n.Remove("ns/a"))
		}
	}
	close(stop)
	n.must(<-result)
	if reads == 0 {
		t.Error("the reader never saw a file")
	}
	t.Logf("%d whole reads", reads)
}
