// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/statefile"
)

var seedFlag = flag.Uint64("fuse.seed", 0, "seed of the random life; 0 takes one from the process ID")

// history is what a bystander knows of one build: what happened to the node, not what the fuse made
// of it.
type history struct {
	// kills is what a load of it does to the node: nothing, or taking it down at once or soon after.
	kills, killsLate bool
	// downs and early are ends of a boot during and soon after a load, in a row.
	downs, early int
	// proof: a dump named it since it was last cleared.
	proof bool
	// heldAt is when a quarantine was reported and is on disk; zero when it has ended.
	heldAt time.Time
	// crashes that it caused within a day, without those before somebody intervened or it stayed live.
	crashes []time.Time
	// loading and live mark this boot's; unsure: the write that begins or ends the load was
	// interrupted, so the disk may say either.
	loading, unsure bool
	live            time.Time
}

// world is a node whose fate is random.
type world struct {
	*testing.T
	*rand.Rand
	dir    string
	now    time.Time
	boot   int
	fuse   *Fuse
	under  *media
	left   *faulty
	builds map[Build]*history
	counts map[string]int
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// dead tells whether the call was interrupted by the agent's or the node's end.
func (w *world) dead(err error) bool {
	w.Helper()
	if err != nil && !errors.Is(err, errDead) {
		w.Fatal(err)
	}
	return err != nil
}

// A random life of 2,000 events, with agents killed and power cut also in the middle of writes,
// judged by what a bystander knows.
func TestRandomLife(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(os.Getpid())
	}
	t.Logf("-fuse.seed=%d", seed)
	w := &world{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), now: t0,
		builds: map[Build]*history{}, counts: map[string]int{},
	}
	for i := range 6 {
		b := Build{Module: "m" + strconv.Itoa(i/2), BuildID: strconv.Itoa(i)}
		w.builds[b] = &history{kills: i == 1, killsLate: i == 3}
	}
	w.newBoot(nil)
	for range 2000 {
		w.event()
		w.audit()
		if t.Failed() {
			t.Fatalf("after %v", w.counts)
		}
	}
	t.Log(w.counts)
	for _, kind := range []string{"load", "crash", "crash with a dump", "power cut", "power cut in a write", "agent killed",
		"agent killed in a write", "reboot", "release", "excuse", "quarantine", "explained by another load"} {
		if w.counts[kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
}

func (w *world) event() {
	w.now = w.now.Add(time.Duration(w.IntN(240)) * time.Second)
	if w.IntN(40) == 0 {
		w.now = w.now.Add(time.Duration(w.IntN(30)) * time.Hour)
	}
	if w.IntN(12) == 0 {
		w.left.left = w.IntN(2 * opsPerWrite) // the end comes in one of the next writes
	}
	b := slices.SortedFunc(maps.Keys(w.builds), compare)[w.IntN(len(w.builds))]
	switch n := w.IntN(100); {
	case n < 60:
		w.load(b)
	case n < 70:
		w.settle()
	case n < 76:
		w.count("power cut")
		w.powerCut()
	case n < 85:
		w.count("agent killed")
		w.newAgent()
	case n < 92:
		w.reboot()
	case n < 96:
		w.release(b)
	default:
		w.excuse(b)
	}
}

func (w *world) count(kind string) { w.counts[kind]++ }

// interrupted is the end that came in the middle of a write: of the agent, or of the power.
func (w *world) interrupted() {
	if w.IntN(2) == 0 {
		w.count("agent killed in a write")
		w.newAgent()
		return
	}
	w.count("power cut in a write")
	w.powerCut()
}

func (w *world) powerCut() {
	states := w.under.after()
	w.must(become(w.dir, states[w.IntN(len(states))]))
	w.newBoot(nil)
}

func (w *world) open() {
	if w.fuse != nil {
		w.must(w.fuse.Close())
	}
	f, err := Open(w.dir, statefile.NoSync)
	w.must(err)
	w.under = newMedia(f.disk, w.dir)
	w.left = &faulty{Dir: w.under, left: 1 << 30, err: errDead}
	f.disk, w.fuse = w.left, f
}

// newBoot tells every build's history that the node went down, and begins the next boot. The one in
// whose load that was is in loading.
func (w *world) newBoot(dumps []Evidence) {
	w.now = w.now.Add(time.Minute)
	w.boot++
	for b, h := range w.builds {
		named := slices.ContainsFunc(dumps, func(d Evidence) bool { return d.Module == b.Module })
		// A load of another build that was on its way, by all that may be on disk, explains the end.
		another := false
		for other, o := range w.builds {
			another = another || other != b && o.loading && !o.unsure
		}
		switch {
		case named && (h.loading || !h.live.IsZero()):
			h.proof = true
		case h.loading:
			h.downs++
		}
		switch {
		case h.live.IsZero():
		case another:
			w.count("explained by another load")
		default:
			h.early++
		}
	}
	w.open()
	verdicts, err := w.fuse.Boot(strconv.Itoa(w.boot), dumps, w.now)
	w.must(err)
	for b, h := range w.builds {
		judged := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Build == b && v.Outcome != Resumed })
		if h.loading && !h.unsure && !judged {
			w.Errorf("%s was being loaded when the node went down, and nobody knows", b)
		}
		h.loading, h.unsure, h.live = false, false, time.Time{}
	}
	w.note(verdicts)
}

// newAgent begins in the same boot: it looks at the kernel, where no load goes on.
func (w *world) newAgent() {
	w.open()
	verdicts, err := w.fuse.Boot(strconv.Itoa(w.boot), nil, w.now)
	w.must(err)
	w.note(verdicts)
	for _, v := range verdicts {
		if v.Outcome != Resumed {
			w.Errorf("same boot: %+v", v)
		}
		h := w.builds[v.Build]
		if !h.live.IsZero() {
			h.live = w.now
		}
		w.must(w.fuse.Done(v.Build, !h.live.IsZero(), w.now))
	}
	for _, h := range w.builds {
		h.loading, h.unsure = false, false
	}
}

func (w *world) note(verdicts []Verdict) {
	for _, v := range verdicts {
		if v.Outcome == Quarantined {
			w.count("quarantine")
			w.builds[v.Build].heldAt = w.now
		}
	}
}

func (w *world) load(b Build) {
	h := w.builds[b]
	_, allowed := w.fuse.Allowed(b, w.now)
	err := w.fuse.Intent(b, w.now)
	if hold := new(Hold); errors.As(err, hold) {
		if allowed {
			w.Errorf("%s is allowed, then held: %v", b, err)
		}
		return
	}
	if w.dead(err) {
		h.loading, h.unsure = true, true
		w.interrupted()
		return
	}
	if !allowed {
		w.Errorf("%s is held, but may begin", b)
	}
	w.count("load")
	h.loading, h.live = true, time.Time{}
	if w.IntN(25) == 0 {
		w.count("power cut")
		w.powerCut()
		return
	}
	if h.kills {
		w.crash(b)
		return
	}
	h.unsure, h.live = true, w.now
	if w.dead(w.fuse.Done(b, true, w.now)) {
		w.interrupted()
		return
	}
	if h.loading, h.unsure = false, false; h.killsLate {
		w.now = w.now.Add(2 * time.Second)
		w.crash(b)
	}
}

func (w *world) crash(b Build) {
	w.count("crash")
	w.builds[b].crashes = append(w.builds[b].crashes, w.now)
	var dumps []Evidence
	if w.IntN(6) == 0 {
		w.count("crash with a dump")
		dumps = []Evidence{{Module: b.Module, At: w.now}}
	}
	states := w.under.after()
	w.must(become(w.dir, states[w.IntN(len(states))]))
	w.newBoot(dumps)
}

func (w *world) reboot() {
	w.count("reboot")
	if w.dead(w.fuse.Stop(w.now)) {
		w.interrupted()
		return
	}
	w.newBoot(nil)
}

func (w *world) settle() {
	_, err := w.fuse.Settle(w.now)
	for _, h := range w.builds {
		if h.live.IsZero() || w.now.Sub(h.live) < SettleAfter+time.Second {
			continue
		}
		if h.crashes = nil; err == nil {
			h.downs, h.early, h.proof, h.live = 0, 0, false, time.Time{}
		}
	}
	if w.dead(err) {
		w.interrupted()
	}
}

func (w *world) release(b Build) {
	w.count("release")
	h := w.builds[b]
	h.heldAt, h.crashes = time.Time{}, nil
	if w.dead(w.fuse.Release(b, w.now)) {
		w.interrupted()
		return
	}
	h.downs, h.early, h.proof = 0, 0, false
}

func (w *world) excuse(b Build) {
	h := w.builds[b]
	done, err := w.fuse.Excuse(b, w.now)
	if done {
		w.count("excuse")
		h.heldAt, h.crashes = time.Time{}, nil
		if err == nil {
			h.downs, h.early = 0, 0
		}
	}
	if w.dead(err) {
		w.interrupted()
	}
}

// audit compares what the fuse says with what a bystander saw.
func (w *world) audit() {
	for b, h := range w.builds {
		hold, ok := w.fuse.Allowed(b, w.now)
		if ends := h.heldAt.Add(QuarantineFor); h.heldAt.IsZero() || !w.now.Before(ends) {
			h.heldAt = time.Time{}
		} else if !hold.Quarantined && w.now.Before(ends.Add(-time.Second)) {
			w.Errorf("the quarantine of %s is lost", b)
		}
		strikes := h.downs + max(0, h.early-EarlyLimit+1)
		if hold.Quarantined && !h.proof && strikes < StrikeLimit {
			w.Errorf("%s is quarantined after %d crashes in and %d soon after a load, without evidence", b, h.downs, h.early)
		}
		if !ok && hold.Until.Sub(w.now) > QuarantineFor {
			w.Errorf("%s is held until %v", b, hold.Until)
		}
		w.rate(b, h)
	}
}

// rate limits how often a build that takes the node down gets to do so within any day.
func (w *world) rate(b Build, h *history) {
	limit := StrikeLimit
	if h.killsLate {
		limit += EarlyLimit - 1
	}
	h.crashes = slices.DeleteFunc(h.crashes, func(at time.Time) bool { return w.now.Sub(at) >= QuarantineFor })
	if len(h.crashes) > limit {
		w.Errorf("%s took the node down %d times within a day: %v", b, len(h.crashes), h.crashes)
	}
}
