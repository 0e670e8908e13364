// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// The life that the tests of this file interrupt at every moment: "bad" takes the node down twice
// and is quarantined, "good" is loaded, "named" is named by a dump, "free" is released. Each step
// is one call, at a time of its own.
var life = []struct {
	call string
	of   Build
	// boot that the step happens in; the node has gone down before the first of each.
	boot int
	at   time.Duration
}{
	{"boot", Build{}, 1, 0},
	{"intent", good, 1, 1 * time.Minute},
	{"done", good, 1, 2 * time.Minute},
	{"intent", bad, 1, 3 * time.Minute},
	{"boot", Build{}, 2, 4 * time.Minute},
	{"intent", named, 2, 5 * time.Minute},
	{"boot", Build{}, 3, 6 * time.Minute},
	{"blame", free, 3, 7 * time.Minute},
	{"intent", good, 3, 8 * time.Minute},
	{"done", good, 3, 9 * time.Minute},
	{"intent", bad, 3, 10 * time.Minute},
	{"boot", Build{}, 4, 11 * time.Minute},
	{"release", free, 4, 12 * time.Minute},
	{"intent", good, 4, 13 * time.Minute},
	{"done", good, 4, 14 * time.Minute},
	{"settle", Build{}, 4, 30 * time.Minute},
	{"stop", Build{}, 4, 31 * time.Minute},
}

var (
	good  = Build{Module: "good", BuildID: "1"}
	bad   = Build{Module: "bad", BuildID: "1"}
	named = Build{Module: "named", BuildID: "1"}
	free  = Build{Module: "free", BuildID: "1"}
)

// live runs life in dir, without syncs of the real disk, which a test's end does not need, through
// disks that wrap makes, and says before and after each step which it is. It returns at the first
// error.
func live(dir string, wrap func(statefile.Dir) statefile.Dir, say func(word string, step int)) error {
	var f *Fuse
	for i, step := range life {
		if step.call == "boot" {
			if f != nil {
				_ = f.Close()
			}
			var err error
			if f, err = Open(dir, statefile.NoSync); err != nil {
				return err
			}
			f.disk = wrap(f.disk)
		}
		say("begin", i)
		if err := perform(f, i); err != nil {
			_ = f.Close()
			return err
		}
		say("end", i)
	}
	return f.Close()
}

func perform(f *Fuse, i int) error {
	step, now := life[i], t0.Add(life[i].at)
	switch step.call {
	case "boot":
		var dumps []Evidence
		if step.boot == 3 {
			dumps = []Evidence{{Module: "named"}}
		}
		_, err := f.Boot(strconv.Itoa(step.boot), dumps, now)
		return err
	case "intent":
		return f.Intent(step.of, now)
	case "done":
		return f.Done(step.of, true, now)
	case "blame":
		return f.Blame(step.of, now)
	case "release":
		return f.Release(step.of, now)
	case "settle":
		_, err := f.Settle(now)
		return err
	case "stop":
		return f.Stop(now)
	}
	return errors.New("no such call: " + step.call)
}

// promised is what must hold once steps up to and without end have returned; the step at end may
// have happened or not.
type promised struct {
	boot    int
	loading map[Build]bool // loads that have begun and not returned
	held    map[Build]bool // quarantines
	downs   map[Build]int  // times that the node went down in a load of it
}

func promise(end int) promised {
	p := promised{loading: map[Build]bool{}, held: map[Build]bool{}, downs: map[Build]int{}}
	for _, step := range life[:end] {
		switch step.call {
		case "boot":
			p.boot = step.boot
			for b := range p.loading {
				if p.downs[b]++; p.downs[b] == StrikeLimit || b == named {
					p.held[b] = true
				}
			}
			clear(p.loading)
		case "intent":
			p.loading[step.of] = true
		case "done":
			delete(p.loading, step.of)
		case "blame":
			p.held[step.of] = true
		case "release":
			delete(p.held, step.of)
		}
	}
	return p
}

// check opens what is left after step begun (the last that began) and ended (how many returned), in
// the same boot or, after a power cut, in a new one, and tells what is wrong with it.
func check(dir string, begun, ended int, cut bool) error {
	f, err := Open(dir, statefile.NoSync)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = f.Close() }()
	before, after := promise(ended), promise(begun+1)
	now := t0.Add(life[begun].at + time.Second)
	boot := strconv.Itoa(max(before.boot, life[begun].boot))
	if cut {
		boot = "after the cut"
	}
	verdicts, err := f.Boot(boot, nil, now)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	strikes, proof := map[Build]int{}, map[Build]bool{}
	for _, st := range f.List(now) {
		strikes[st.Build], proof[st.Build] = st.Strikes, st.Evidence
	}
	for b := range before.loading {
		open := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Build == b })
		if returned := life[begun].call == "done"; !open && !returned && !proof[b] && strikes[b] <= before.downs[b] {
			return fmt.Errorf("%s was being loaded and nobody knows: %v", b, verdicts)
		}
	}
	if strikes[bad] < before.downs[bad] {
		return fmt.Errorf("%d strikes after %d crashes", strikes[bad], before.downs[bad])
	}
	for _, b := range []Build{good, bad, named, free} {
		hold, _ := f.Allowed(b, now)
		if before.held[b] && after.held[b] && !hold.Quarantined {
			return fmt.Errorf("the quarantine of %s is lost", b)
		}
		downs := after.downs[b]
		if after.loading[b] || before.loading[b] {
			downs++
		}
		if may := before.held[b] || after.held[b] || downs >= StrikeLimit; hold.Quarantined && !may {
			return fmt.Errorf("%s is quarantined after %d crashes", b, downs)
		}
	}
	return nil
}

// Every moment of every write, killed by the kernel (what was written is there) and by the power
// (what was not synced may be there or not, or in part).
func TestEveryMoment(t *testing.T) {
	moments, states, wrong := everyMoment(t, func(*media) {})
	for _, err := range wrong {
		t.Error(err)
	}
	t.Logf("%d moments, %d states of the disk", moments, states)
	if moments < (len(life)-1)*opsPerWrite {
		t.Errorf("only %d moments", moments)
	}
}

// Without one of the syncs the test above must fail: else it would show nothing.
func TestEveryMomentNeedsEverySync(t *testing.T) {
	for name, lose := range map[string]func(*media){
		"file":      func(m *media) { m.losesFile = true },
		"directory": func(m *media) { m.losesDir = true },
	} {
		if _, _, wrong := everyMoment(t, lose); len(wrong) == 0 {
			t.Errorf("no state was wrong without the sync of the %s", name)
		}
	}
}

func everyMoment(t *testing.T, spoil func(*media)) (moments, states int, wrong []error) {
	for moment := 0; ; moment++ {
		dir := t.TempDir()
		var under *media
		begun, ended := 0, 0
		left := &faulty{left: moment, err: errDead}
		err := live(dir, func(inner statefile.Dir) statefile.Dir {
			if under == nil {
				under = newMedia(inner, dir)
				spoil(under)
			}
			under.Dir = inner
			left.Dir = under
			return left
		}, func(word string, step int) {
			if begun = step; word == "end" {
				ended = step + 1
			}
		})
		if err == nil {
			return moment, states, wrong
		}
		if !errors.Is(err, errDead) {
			// With syncs that do nothing a boot may already have found too little.
			return moment, states, append(wrong, err)
		}
		after := under.after()
		if err := check(dir, begun, ended, false); err != nil {
			wrong = append(wrong, fmt.Errorf("killed at moment %d (%s): %w", moment, life[begun].call, err))
		}
		for i, content := range after {
			if err := become(dir, content); err != nil {
				t.Fatal(err)
			}
			if err := check(dir, begun, ended, true); err != nil {
				wrong = append(wrong, fmt.Errorf("power cut at moment %d (%s), state %d: %w", moment, life[begun].call, i, err))
			}
		}
		states += 1 + len(after)
	}
}

const killEnv = "DROVER_FUSE_TEST_KILL"

// TestMain lets the test run itself as the process that is killed.
func TestMain(m *testing.M) {
	if at, err := strconv.Atoi(os.Getenv(killEnv)); err == nil {
		os.Exit(victim(at))
	}
	os.Exit(m.Run())
}

// victim lives in the working directory and kills itself before the operation with that number.
func victim(at int) int {
	counted := &faulty{left: 1 << 30, before: func() {
		if at--; at < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	err := live(".", func(inner statefile.Dir) statefile.Dir { counted.Dir = inner; return counted },
		func(word string, step int) { fmt.Println(word, step) })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// The same with a real process, real files and SIGKILL.
func TestSIGKILLAtEveryMoment(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for moment := 0; ; moment++ {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), killEnv+"="+strconv.Itoa(moment))
		out, err := cmd.Output()
		if err == nil {
			t.Logf("%d processes killed", moment)
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !killed(exit.Sys()) {
			t.Fatalf("moment %d: %v: %s", moment, err, out)
		}
		begun, ended := lastSaid(t, out)
		if err := check(dir, begun, ended, false); err != nil {
			t.Errorf("moment %d (%s): %v", moment, life[begun].call, err)
		}
	}
}

func killed(status any) bool {
	ws, ok := status.(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

func lastSaid(t *testing.T, out []byte) (begun, ended int) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		step, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("the victim said %q", lines.Text())
		}
		if begun = step; word == "end" {
			ended = step + 1
		}
	}
	return begun, ended
}
