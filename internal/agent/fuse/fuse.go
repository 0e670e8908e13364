// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	// RetryAfter is how long a build waits after its first strike.
	RetryAfter = 5 * time.Minute
	// StrikeLimit is how many strikes in a row quarantine a build.
	StrikeLimit = 2
	// SettleAfter is how long a load has to stay live to clear what is held against its build.
	SettleAfter = 5 * time.Minute
	// EarlyLimit is how many boots in a row may end within SettleAfter of a load that had returned before that counts
	// as a strike too. It is larger than StrikeLimit because that window is five minutes wide, not milliseconds.
	EarlyLimit = 3
	// QuarantineFor is how long a quarantine lasts.
	QuarantineFor = 24 * time.Hour
	// ExcuseEvery is how long after one Excuse the next one counts. A build that takes down many nodes at once looks
	// like a power cut; without this bound it would be excused for ever.
	ExcuseEvery = 24 * time.Hour
	// MaxBuilds is how many builds are remembered. Those that hold nothing back go first, then the oldest.
	MaxBuilds = 256

	// Longer names than these are no modules: the kernel allows 55 characters, a build ID has 40 or 64.
	maxName    = 64
	maxBuildID = 128
)

var (
	// ErrNoBoot says that Boot has not been called yet: what the last boot left open is not judged.
	ErrNoBoot = errors.New("fuse: the boot is not known yet")
	// ErrFull says that MaxBuilds loads are on their way.
	ErrFull = fmt.Errorf("fuse: %d loads are on their way", MaxBuilds)
	// ErrNotOpen says that no load of the build is on its way.
	ErrNotOpen = errors.New("fuse: no load of this build is on its way")
)

// Build is one build of one kernel module.
type Build struct {
	// Module name as the kernel has it; "-" and "_" are the same.
	Module string `json:"module"`
	// BuildID tells builds apart: the GNU build ID, else srcversion, else a digest of the file. Builds that share an
	// empty one share their fate.
	BuildID string `json:"buildID,omitempty"`
}

// String names both.
func (b Build) String() string {
	if b.BuildID == "" {
		return b.Module
	}
	return b.Module + " (build " + b.BuildID + ")"
}

// Evidence is a dump of the kernel that names a module as its culprit, see Culprits.
type Evidence struct {
	Module string
	// At is when the kernel wrote the dump. One older than the load in question is ignored. Zero: of the last boot.
	At time.Time
}

// Fuse remembers builds that may have taken the node down. Its methods may be called concurrently.
//
// A method that fails to write keeps what it learned in memory, and the next one that writes writes that too. So a
// load is never begun on a fuse that is behind: Intent writes everything or fails.
type Fuse struct {
	mu    sync.Mutex
	root  *os.Root
	disk  statefile.Dir // root, or what a test puts in its place
	state state
	// behind: the file may not say what state says.
	behind bool
	// ready: Boot has judged what was open.
	ready bool
}

// Open reads the fuse in dir, the agent's state directory, which must exist and be the agent's own. Without durable
// nothing is synced to disk; that is for kernels that do not outlive the process either.
//
// A file that cannot be trusted is moved aside and the fuse begins empty: the error is then an *AsideError, to be
// reported, and the fuse is usable. With any other error, that the directory cannot be opened or that the system has no
// descriptors or memory left, there is none.
func Open(dir string, durable bool) (*Fuse, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("fuse: %w", err)
	}
	st, err := load(root)
	var aside *AsideError
	if err != nil && !errors.As(err, &aside) {
		return nil, errors.Join(err, root.Close())
	}
	return &Fuse{root: root, disk: statefile.Disk{Root: root, Durable: durable}, state: st}, err
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

// Boot judges what the last agent left open, given the kernel's boot ID and the dumps of the boot before, and must be
// called before the first load. Called again in the same boot it judges nothing a second time.
//
// On an error the verdicts hold, but are not on disk; the next call that writes retries.
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

// Allowed tells whether the build may be loaded now, and if not, why and until when.
func (f *Fuse) Allowed(b Build, now time.Time) (Hold, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.notAfter(now)
	return f.state.allowed(b.normal(), now)
}

// Intent notes, on disk, that the build is about to be loaded. Unless it returns nil the build must not be loaded; a
// Hold as the error says that Allowed would have refused it.
//
// Whatever runs the load must die with the agent or finish in this boot under its eyes: after Done nothing watches it.
func (f *Fuse) Intent(b Build, now time.Time) error {
	if b.Module == "" || len(b.Module) > maxName || len(b.BuildID) > maxBuildID {
		return fmt.Errorf("fuse: %.80q (%.130q) is no build of a module", b.Module, b.BuildID)
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
		// No load follows, so none is open.
		f.state = before
		return err
	}
	return nil
}

// Done notes that the load has returned, whatever its result, or that the kernel was seen to have no load of the build
// on its way. live tells whether the module is in the kernel now.
func (f *Fuse) Done(b Build, live bool, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.done(b.normal(), live, clean(now)) {
		return fmt.Errorf("%w: %s", ErrNotOpen, b)
	}
	return f.save(true, now)
}

// Settle clears what is held against builds whose load returned at least SettleAfter ago. It writes only if there are
// any; next is when there will be more, zero if nothing is settling.
func (f *Fuse) Settle(now time.Time) (next time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, changed := f.state.settle(now)
	return next, f.save(changed, now)
}

// Blame quarantines a build at once: the kernel of this boot said that the module is at fault, and lives on (an oops
// kills the task that loads). A load of it that never returned stays open.
func (f *Fuse) Blame(b Build, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.blame(b.normal(), clean(now))
	return f.save(true, now)
}

// Release ends a quarantine or a wait and clears strikes: a person asked for a retry.
func (f *Fuse) Release(b Build, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.save(f.state.release(b.normal()), now)
}

// Excuse takes back what a build has been held to without evidence, because many nodes went down together: the cause
// was outside. It tells whether it did: it does not for a quarantine by evidence, nor twice within ExcuseEvery.
func (f *Fuse) Excuse(b Build, now time.Time) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.state.excuse(b.normal(), clean(now))
	return changed, f.save(changed, now)
}

// Stop notes that the agent was told to stop: if this boot ends before another agent begins, it was an orderly end and
// nothing is counted, unless a dump says otherwise.
func (f *Fuse) Stop(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.save(f.state.stop(), now)
}

// Status is what the fuse has on one build.
type Status struct {
	Build Build
	// Loading: a load has begun and not returned.
	Loading bool
	// Strikes in a row.
	Strikes int
	// Began is when the load began, during or soon after which the node last went down. It is closer to that moment
	// than the next boot, which may be long after. Zero without strikes.
	Began time.Time
	// Quarantined until then; zero if it is not.
	Quarantined time.Time
	// Evidence: the quarantine is because of what a kernel said, not of strikes.
	Evidence bool
}

// List returns what there is to report, ordered by module and build. Builds that only settle are left out.
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

// clean drops what a file would not keep: zone, monotonic reading, fractions of a second.
func clean(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
