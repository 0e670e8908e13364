// SPDX-License-Identifier: Apache-2.0

// Package fuse keeps a kernel module that takes the node down from doing so at every boot, and
// keeps a power cut, a reboot or a killed agent from condemning a healthy build.
//
// It decides and remembers; it loads nothing, has no clock and does not log. Its memory is one file
// in the agent's state directory, apart from the record, so that no fault loses both.
//
// The order of calls in one life of the agent:
//
//	f, err := fuse.Open(dir, nil)               // err may come with a usable f: report it and go on
//	verdicts, err := f.Boot(bootID, dumps, now) // once, before any load; Resumed: look at the kernel, then Done
//	hold, ok := f.Allowed(build, now)           // not ok: quarantined, or wait until hold.Until
//	err = f.Intent(build, now)                  // not nil: do not load
//	...finit_module...
//	err = f.Done(build, live, now)              // whatever the kernel said
//	err = f.Settle(now)                         // every minute or so
//	err = f.Stop(now)                           // told to stop: an orderly reboot may follow
//
// Boot judges each build whose load had not returned, or had returned less than SettleAfter ago.
// The first of these that holds decides:
//
//   - the boot has not ended, only the agent: nothing;
//   - a dump of the kernel names the module: quarantine;
//   - a dump names another module that was being loaded, or the agent had been told to stop:
//     nothing;
//   - the load had not returned: a strike, and a new try after RetryAfter; StrikeLimit in a row
//     quarantine;
//   - the load had returned, and another had not, which explains the end: nothing;
//   - otherwise: nothing, but a strike from the EarlyLimit-th time in a row on.
//
// "In a row" ends when a load of the build stays live for SettleAfter. A quarantine ends after
// QuarantineFor, by Release, or with another build.
//
// Times are of the node's wall clock. If it jumps forward, waits end early. Times in the future
// count as now, so that a clock that was wrong once delays nothing for years.
package fuse

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// What the fuse forgives, and for how long it remembers.
const (
	RetryAfter  = 5 * time.Minute // how long a build waits after its first strike
	StrikeLimit = 2               // strikes in a row quarantine a build
	SettleAfter = 5 * time.Minute // how long a load has to stay live to clear its build's strikes
	// EarlyLimit is how many boots in a row must end within SettleAfter of a load until that counts as
	// a strike. It is larger than StrikeLimit because that window is minutes wide, not milliseconds.
	EarlyLimit    = 3
	QuarantineFor = 24 * time.Hour // how long a quarantine lasts
	// ExcuseEvery is how long after an Excuse the next one counts. A build that takes down many nodes
	// at once looks like a power cut, and would be excused for ever.
	ExcuseEvery = 24 * time.Hour
	MaxBuilds   = 256 // are remembered; those whose loss costs least are forgotten first

	// The kernel allows names of 55 characters, a build ID has 40 or 64.
	maxName    = 64
	maxBuildID = 128
)

var (
	// ErrNoBoot says that Boot has not been called yet.
	ErrNoBoot = errors.New("fuse: the boot is not known yet")
	// ErrFull says that MaxBuilds loads have not returned.
	ErrFull = fmt.Errorf("fuse: %d loads have not returned", MaxBuilds)
	// ErrNotOpen says that the build has no load that has not returned.
	ErrNotOpen = errors.New("fuse: no load of this build is open")
)

// Build is one build of one kernel module.
type Build struct {
	Module string `json:"module"` // the kernel's name; "-" and "_" are the same
	// BuildID tells builds apart: the GNU build ID, else srcversion, else a digest of the file. Builds
	// without one share their fate.
	BuildID string `json:"buildID,omitempty"`
}

func (b Build) String() string {
	if b.BuildID == "" {
		return b.Module
	}
	return b.Module + " (build " + b.BuildID + ")"
}

// Evidence is a dump of the kernel that names a module as its culprit, see Culprits.
type Evidence struct {
	Module string
	// At is when it was written: one older than a load is not about it. Zero: in the last boot.
	At time.Time
}

// Fuse remembers builds that may have taken the node down. Its methods may be called concurrently.
//
// What a method fails to write stays in memory, and the next one that writes writes it too. So no
// load begins on a fuse whose file is behind: Intent writes everything or fails.
type Fuse struct {
	mu     sync.Mutex
	root   *os.Root
	disk   statefile.Dir // root, or what a test puts in its place
	state  state
	behind bool // the file may not say what state says
	ready  bool // Boot has judged what was open
}

// Open reads the fuse in dir, the agent's state directory, which must exist and be the agent's own.
//
// A file that cannot be trusted is moved aside: with an *AsideError, the fuse is empty, but usable.
// With any other error, there is none.
func Open(dir string, sync statefile.Sync) (*Fuse, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("fuse: %w", err)
	}
	st, err := load(root)
	if _, aside := errors.AsType[*AsideError](err); err != nil && !aside {
		return nil, errors.Join(err, root.Close())
	}
	return &Fuse{root: root, disk: statefile.Disk{Root: root, Fsync: sync}, state: st}, err
}

// Close closes the directory. It writes nothing.
func (f *Fuse) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.root.Close(); err != nil {
		return fmt.Errorf("fuse: %w", err)
	}
	return nil
}

// Boot judges what the last agent left open, by the kernel's boot ID and the dumps of the last
// boot. It must be called before the first load. In one boot, it judges once. The verdicts hold
// also with an error, but are not on disk.
func (f *Fuse) Boot(bootID string, dumps []Evidence, now time.Time) ([]Verdict, error) {
	if bootID == "" {
		return nil, errors.New("fuse: no boot ID")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	verdicts, changed := f.state.boot(bootID, dumps, clean(now))
	f.ready = true
	return verdicts, f.save(changed, now)
}

// Allowed tells whether the build may be loaded now; if not, why and until when.
func (f *Fuse) Allowed(b Build, now time.Time) (Hold, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.notAfter(now)
	return f.state.allowed(b.normal(), now)
}

// ErrNoBuild says that a name or a build ID is not what a module can have.
var ErrNoBuild = errors.New("is not a build of a module")

// Intent records, on disk, that the build is about to be loaded. It must not be loaded unless
// Intent returns nil; the error is a Hold if Allowed would have refused it.
//
// Whatever runs the load must end before Done is called: after that, nothing watches it.
func (f *Fuse) Intent(b Build, now time.Time) error {
	if b.Module == "" || len(b.Module) > maxName || len(b.BuildID) > maxBuildID {
		return fmt.Errorf("fuse: %.80q (%.130q) %w", b.Module, b.BuildID, ErrNoBuild)
	}
	b = b.normal()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready {
		return ErrNoBoot
	}
	f.state.notAfter(now)
	if hold, ok := f.state.allowed(b, now); !ok {
		return hold
	}
	before := f.state.clone()
	if !f.state.intend(b, clean(now)) {
		return ErrFull
	}
	if err := f.save(true, now); err != nil {
		f.state = before // no load follows
		return err
	}
	return nil
}

// Done records that the build's load has returned, or that the kernel has none. live tells whether
// the module is in the kernel now.
func (f *Fuse) Done(b Build, live bool, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.done(b.normal(), live, clean(now)) {
		return fmt.Errorf("%w: %s", ErrNotOpen, b)
	}
	return f.save(true, now)
}

// Settle clears the strikes of builds whose load returned at least SettleAfter ago. next is when to
// call it again; zero: nothing is settling.
func (f *Fuse) Settle(now time.Time) (next time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, changed := f.state.settle(now)
	return next, f.save(changed, now)
}

// Blame quarantines a build at once: the kernel of this boot named the module and lives on, as
// after an oops. A load that has not returned stays open.
func (f *Fuse) Blame(b Build, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.of(b.normal()).quarantine(clean(now), true)
	return f.save(true, now)
}

// Release ends a quarantine or a wait and clears strikes, as a person asks for.
func (f *Fuse) Release(b Build, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.save(f.state.release(b.normal()), now)
}

// Excuse takes back strikes because many nodes went down together: the cause was outside. It tells
// whether it did; it does not for a quarantine by evidence, nor twice within ExcuseEvery.
func (f *Fuse) Excuse(b Build, now time.Time) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.state.excuse(b.normal(), clean(now))
	return changed, f.save(changed, now)
}

// Stop records that the agent was told to stop: if this boot ends before another agent begins, that
// was an orderly end, unless a dump says otherwise.
func (f *Fuse) Stop(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := !f.state.Stopped
	f.state.Stopped = true
	return f.save(changed, now)
}

// Status is what the fuse has on one build.
type Status struct {
	Build       Build
	Loading     bool      // a load has begun and not returned
	Strikes     int       // in a row
	Began       time.Time // when the load began that the last strike is for; zero without strikes
	Quarantined time.Time // until when the build is quarantined; zero if it is not
	Evidence    bool      // it is quarantined because a kernel named it
}

// List returns what there is to report, by module and build, without builds that only settle.
func (f *Fuse) List(now time.Time) []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.notAfter(now)
	return f.state.list(now)
}

// save writes the state if it changed or the file is behind.
func (f *Fuse) save(changed bool, now time.Time) error {
	if !changed && !f.behind {
		return nil
	}
	f.behind = true
	f.state.prune(now)
	if err := f.state.write(f.disk); err != nil {
		return err
	}
	f.behind = false
	return nil
}

// clean drops what the file does not keep: zone, monotonic reading, fractions of a second.
func clean(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
