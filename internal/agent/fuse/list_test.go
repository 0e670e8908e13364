// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/fuse"
)

func TestList(t *testing.T) {
	n := newNode(t)
	n.load(fuse.Build{Module: "fine"})
	began := n.now
	n.begin(other)
	n.reboot(dump("other"))
	n.crash(drv)
	n.wait(fuse.RetryAfter)
	crashed := n.now
	n.crash(drv)
	quarantined := n.now
	n.begin(fuse.Build{Module: "busy"})
	want := []fuse.Status{
		{Build: fuse.Build{Module: "busy"}, Loading: true},
		{Build: drv, Strikes: 2, Began: crashed, Quarantined: quarantined.Add(fuse.QuarantineFor)},
		{Build: other, Quarantined: began.Add(time.Minute + fuse.QuarantineFor), Evidence: true},
	}
	for range 2 {
		if diff := cmp.Diff(want, n.List(n.now)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		n.restart()
	}
}

// However many builds there are, what is held back stays held back, and the file stays small.
func TestBounded(t *testing.T) {
	n := newNode(t)
	n.crash(drv)
	n.crash(drv)
	for i := range 3 * fuse.MaxBuilds {
		n.load(fuse.Build{Module: "m", BuildID: strconv.Itoa(i)})
		n.wait(time.Second)
	}
	n.held(drv, true, fuse.QuarantineFor-3*fuse.MaxBuilds*time.Second)
	n.verdicts(n.restart())
	if got := len(n.reboot()); got >= fuse.MaxBuilds {
		t.Errorf("%d verdicts", got)
	}
	for i := range fuse.MaxBuilds {
		n.begin(fuse.Build{Module: "o" + strconv.Itoa(i)})
	}
	if err := n.Intent(fuse.Build{Module: "more"}, n.now); !errors.Is(err, fuse.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if got := len(n.reboot()); got != fuse.MaxBuilds {
		t.Errorf("%d verdicts of %d open loads", got, fuse.MaxBuilds)
	}
}

// When there are more quarantines than can be remembered, the oldest goes.
func TestOldestQuarantineGoes(t *testing.T) {
	n := newNode(t)
	build := func(i int) fuse.Build { return fuse.Build{Module: "m", BuildID: strconv.Itoa(i)} }
	for i := range fuse.MaxBuilds + 2 {
		n.ok(n.Blame(build((i+100)%(fuse.MaxBuilds+2)), n.now))
		n.wait(time.Second)
	}
	for i := range fuse.MaxBuilds + 2 {
		if _, ok := n.Allowed(build(i), n.now); ok != (i == 100 || i == 101) {
			t.Errorf("build %d: allowed %v", i, ok)
		}
	}
}
