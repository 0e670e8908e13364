// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/statefile"
)

var (
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	drv   = fuse.Build{Module: "drv", BuildID: "aa"}
	next  = fuse.Build{Module: "drv", BuildID: "bb"}
	other = fuse.Build{Module: "other", BuildID: "aa"}
)

// node is a machine with an agent and a clock.
type node struct {
	*testing.T
	dir  string
	now  time.Time
	boot int
	*fuse.Fuse
}

func newNode(t *testing.T) *node {
	n := &node{T: t, dir: t.TempDir(), now: start}
	n.reboot()
	t.Cleanup(func() { n.ok(n.Close()) })
	return n
}

func (n *node) ok(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// reboot takes a minute; nobody says goodbye.
func (n *node) reboot(dumps ...fuse.Evidence) []fuse.Verdict {
	n.Helper()
	n.now = n.now.Add(time.Minute)
	n.boot++
	return n.restart(dumps...)
}

// restart begins a new agent.
func (n *node) restart(dumps ...fuse.Evidence) []fuse.Verdict {
	n.Helper()
	if n.Fuse != nil {
		n.ok(n.Close())
	}
	f, err := fuse.Open(n.dir, statefile.NoSync)
	n.ok(err)
	n.Fuse = f
	verdicts, err := f.Boot(strconv.Itoa(n.boot), dumps, n.now)
	n.ok(err)
	return verdicts
}

func (n *node) wait(d time.Duration) { n.now = n.now.Add(d) }

func (n *node) begin(b fuse.Build) { n.Helper(); n.ok(n.Intent(b, n.now)) }

func (n *node) load(b fuse.Build) {
	n.Helper()
	n.begin(b)
	n.ok(n.Done(b, true, n.now))
}

// crash goes down in a load of the build, after any wait it is held to.
func (n *node) crash(b fuse.Build) []fuse.Verdict {
	n.Helper()
	if hold, ok := n.Allowed(b, n.now); !ok {
		n.now = hold.Until
	}
	n.begin(b)
	return n.reboot()
}

func (n *node) verdicts(got []fuse.Verdict, want ...fuse.Verdict) {
	n.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		n.Errorf("verdicts (-want +got)\n%s", diff)
	}
}

// held expects a hold of that kind and length; 0 is none.
func (n *node) held(b fuse.Build, quarantined bool, d time.Duration) {
	n.Helper()
	hold, ok := n.Allowed(b, n.now)
	if ok != (d == 0) || hold.Quarantined != quarantined || !ok && hold.Until.Sub(n.now) != d {
		n.Errorf("%v at %v: %+v %v; want quarantined %v for %v", b, n.now, hold, ok, quarantined, d)
	}
	err := n.Intent(b, n.now)
	if asHold := new(fuse.Hold); errors.As(err, asHold) == ok {
		n.Errorf("Allowed says %v, Intent %v", ok, err)
	}
	if err == nil {
		n.ok(n.Done(b, false, n.now))
	}
}

func dump(module string) fuse.Evidence { return fuse.Evidence{Module: module} }

// Verdicts that lives come to.
var (
	struck  = fuse.Verdict{Build: drv, Outcome: fuse.Struck, Strikes: 1}
	second  = fuse.Verdict{Build: drv, Outcome: fuse.Quarantined, Strikes: 2}
	named   = fuse.Verdict{Build: drv, Outcome: fuse.Quarantined, Evidence: true}
	spared  = fuse.Verdict{Build: drv, Outcome: fuse.Spared}
	resumed = fuse.Verdict{Build: drv, Outcome: fuse.Resumed}
)

// lives are lives of a node, and what the fuse makes of them.
var lives = map[string]func(n *node){
	"a first boot says nothing": func(n *node) {
		n.held(drv, false, 0)
	},
	"the agent dies in a load, the kernel does not": func(n *node) {
		n.begin(drv)
		for range 5 {
			n.verdicts(n.restart(), resumed)
			if hold, ok := n.Allowed(next, n.now); ok || !hold.Until.IsZero() {
				n.Errorf("another build of a module that is being loaded: %v %v", hold, ok)
			}
		}
		n.ok(n.Done(drv, true, n.now))
		n.verdicts(n.restart())
		n.held(drv, false, 0)
	},
	"a reboot in a load is one strike": func(n *node) {
		n.verdicts(n.crash(drv), struck)
		n.held(drv, false, fuse.RetryAfter)
		n.held(next, false, 0)
		n.held(other, false, 0)
		n.verdicts(n.restart())
		n.held(drv, false, fuse.RetryAfter)
		n.wait(fuse.RetryAfter)
		n.held(drv, false, 0)
	},
	"two in a row are a quarantine, for a day": func(n *node) {
		n.crash(drv)
		n.verdicts(n.crash(drv), second)
		n.held(drv, true, fuse.QuarantineFor)
		n.held(next, false, 0)
		n.verdicts(n.reboot())
		n.held(drv, true, fuse.QuarantineFor-time.Minute)
		n.wait(fuse.QuarantineFor - time.Minute)
		n.held(drv, false, 0)
	},
	"after the day one more strike is enough": func(n *node) {
		n.crash(drv)
		n.crash(drv)
		n.verdicts(n.crash(drv), fuse.Verdict{Build: drv, Outcome: fuse.Quarantined, Strikes: 3})
	},
	"a load that stays live ends the row": func(n *node) {
		n.crash(drv)
		n.wait(fuse.RetryAfter)
		n.load(drv)
		at, err := n.Settle(n.now)
		n.ok(err)
		if want := n.now.Add(fuse.SettleAfter); !at.Equal(want) {
			n.Errorf("settles at %v, want %v", at, want)
		}
		n.wait(fuse.SettleAfter)
		_, err = n.Settle(n.now)
		n.ok(err)
		n.verdicts(n.crash(drv), struck)
	},
	"one that does not stay live does not": func(n *node) {
		n.crash(drv)
		n.wait(fuse.RetryAfter)
		n.load(drv)
		n.verdicts(n.reboot(), fuse.Verdict{Build: drv, Outcome: fuse.Spared, Strikes: 1})
		n.verdicts(n.crash(drv), second)
	},
	"a dump that names the module is a quarantine at once": func(n *node) {
		n.begin(fuse.Build{Module: "d-r", BuildID: "aa"})
		n.verdicts(n.reboot(dump("d_r")),
			fuse.Verdict{Build: fuse.Build{Module: "d_r", BuildID: "aa"}, Outcome: fuse.Quarantined, Evidence: true})
		n.held(fuse.Build{Module: "d_r", BuildID: "aa"}, true, fuse.QuarantineFor)
		n.held(fuse.Build{Module: "d-r", BuildID: "aa"}, true, fuse.QuarantineFor)
	},
	"one that names a stranger is none": func(n *node) {
		n.begin(drv)
		n.verdicts(n.reboot(dump("stranger")), struck)
	},
	"one that is older than the load is none": func(n *node) {
		n.begin(drv)
		n.verdicts(n.reboot(fuse.Evidence{Module: "drv", At: n.now.Add(-time.Second)}), struck)
	},
	"one of the load's own second is": func(n *node) {
		n.wait(300 * time.Millisecond)
		n.begin(drv)
		n.verdicts(n.reboot(fuse.Evidence{Module: "drv", At: n.now}), named)
	},
	"one that names another open load spares this one": func(n *node) {
		n.begin(drv)
		n.begin(other)
		n.verdicts(n.reboot(dump("other")), spared, fuse.Verdict{Build: other, Outcome: fuse.Quarantined, Evidence: true})
		n.held(drv, false, 0)
	},
	"without a dump all open loads are struck": func(n *node) {
		n.begin(drv)
		n.begin(other)
		n.verdicts(n.reboot(), struck, fuse.Verdict{Build: other, Outcome: fuse.Struck, Strikes: 1})
	},
	"a crash soon after a load, with a dump": func(n *node) {
		n.load(drv)
		n.wait(fuse.SettleAfter)
		n.verdicts(n.reboot(dump("drv")), named)
	},
	"a crash long after one": func(n *node) {
		n.load(drv)
		n.wait(fuse.SettleAfter)
		_, err := n.Settle(n.now)
		n.ok(err)
		n.verdicts(n.reboot(dump("drv")))
		n.held(drv, false, 0)
	},
	"boots that end soon after a load": func(n *node) {
		for range fuse.EarlyLimit - 1 {
			n.load(drv)
			n.verdicts(n.reboot(), spared)
		}
		n.load(drv)
		n.verdicts(n.reboot(), struck)
		n.wait(fuse.RetryAfter)
		n.load(drv)
		n.verdicts(n.reboot(), second)
	},
	"boots that end while another build is being loaded": func(n *node) {
		for range 2 * fuse.EarlyLimit {
			n.load(drv)
			n.begin(other)
			n.verdicts(n.reboot(), spared, fuse.Verdict{Build: other, Outcome: fuse.Struck, Strikes: 1})
			n.ok(n.Release(other, n.now))
		}
		for range fuse.EarlyLimit - 1 {
			n.load(drv)
			n.verdicts(n.reboot(), spared)
		}
		n.load(drv)
		n.verdicts(n.reboot(), struck)
	},
	"another build whose load has returned explains nothing": func(n *node) {
		for range fuse.EarlyLimit - 1 {
			n.load(drv)
			n.load(other)
			n.verdicts(n.reboot(), spared, fuse.Verdict{Build: other, Outcome: fuse.Spared})
		}
		n.load(drv)
		n.load(other)
		n.verdicts(n.reboot(), struck, fuse.Verdict{Build: other, Outcome: fuse.Struck, Strikes: 1})
	},
	"orderly ones are not counted": func(n *node) {
		for range 3 * fuse.EarlyLimit {
			n.load(drv)
			n.ok(n.Stop(n.now))
			n.verdicts(n.reboot(), spared)
		}
		n.begin(drv)
		n.ok(n.Stop(n.now))
		n.verdicts(n.reboot(), spared)
		n.begin(drv)
		n.ok(n.Stop(n.now))
		n.verdicts(n.reboot(dump("drv")), named)
	},
	"an upgrade of the agent is no orderly end": func(n *node) {
		n.begin(drv)
		n.ok(n.Stop(n.now))
		n.verdicts(n.restart(), resumed)
		n.verdicts(n.reboot(), struck)
	},
	"a load after a stop takes it back": func(n *node) {
		n.ok(n.Stop(n.now))
		n.begin(drv)
		n.verdicts(n.reboot(), struck)
	},
	"a load that fails leaves nothing": func(n *node) {
		n.begin(drv)
		n.ok(n.Done(drv, false, n.now))
		n.verdicts(n.reboot(dump("drv")))
	},
	"one that fails after one that did not": func(n *node) {
		n.load(drv)
		n.begin(drv)
		n.ok(n.Done(drv, false, n.now))
		n.verdicts(n.reboot(dump("drv")))
	},
	"an oops that the node survives": func(n *node) {
		n.begin(drv)
		n.ok(n.Blame(drv, n.now))
		n.ok(n.Done(drv, false, n.now))
		n.held(drv, true, fuse.QuarantineFor)
	},
	"a person asks for a retry": func(n *node) {
		n.crash(drv)
		n.ok(n.Release(drv, n.now))
		n.held(drv, false, 0)
		n.verdicts(n.crash(drv), struck)
		n.verdicts(n.crash(drv), second)
		n.ok(n.Release(drv, n.now))
		n.verdicts(n.restart())
		n.held(drv, false, 0)
		n.begin(drv)
		n.verdicts(n.reboot(dump("drv")), named)
		n.ok(n.Release(drv, n.now))
		n.held(drv, false, 0)
		n.ok(n.Release(other, n.now))
	},
	"an outside cause": func(n *node) {
		excuse := func(b fuse.Build, want bool) {
			n.Helper()
			got, err := n.Excuse(b, n.now)
			n.ok(err)
			if got != want {
				n.Errorf("excused %v: %v", b, got)
			}
		}
		excuse(drv, false)
		n.crash(drv)
		excuse(drv, true)
		n.held(drv, false, 0)
		n.crash(drv)
		excuse(drv, false) // the second time within a day it may be the build after all
		n.verdicts(n.crash(drv), second)
		n.wait(fuse.ExcuseEvery - 5*time.Minute)
		excuse(drv, true)
		n.held(drv, false, 0)
		n.begin(other)
		n.reboot(dump("other"))
		excuse(other, false)
		n.held(other, true, fuse.QuarantineFor)
		n.crash(next)
		n.ok(n.Blame(next, n.now))
		excuse(next, false) // there is evidence
		n.held(next, true, fuse.QuarantineFor)
	},
	"a clock that was wrong holds nothing for years": func(n *node) {
		n.wait(10 * 365 * 24 * time.Hour)
		n.crash(drv)
		n.crash(drv)
		n.load(other)
		n.now = start
		n.held(drv, true, fuse.QuarantineFor)
		if at, err := n.Settle(n.now); err != nil || !at.Equal(n.now.Add(fuse.SettleAfter)) {
			n.Errorf("settles at %v, %v", at, err)
		}
		n.verdicts(n.reboot(), fuse.Verdict{Build: other, Outcome: fuse.Spared})
		n.wait(fuse.QuarantineFor)
		n.held(drv, false, 0)
	},
	"what must not be": func(n *node) {
		if err := n.Done(drv, true, n.now); !errors.Is(err, fuse.ErrNotOpen) {
			n.Error(err)
		}
		if err := n.Intent(fuse.Build{BuildID: "aa"}, n.now); err == nil {
			n.Error("a module without a name")
		}
		if _, err := n.Boot("", nil, n.now); err == nil {
			n.Error("a boot without an ID")
		}
		n.ok(n.Close())
		f, err := fuse.Open(n.dir, statefile.NoSync)
		n.ok(err)
		n.Fuse = f
		if err := n.Intent(drv, n.now); !errors.Is(err, fuse.ErrNoBoot) {
			n.Error(err)
		}
	},
}

func TestLives(t *testing.T) {
	for name, live := range lives {
		t.Run(name, func(t *testing.T) { live(newNode(t)) })
	}
}
