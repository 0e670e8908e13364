// SPDX-License-Identifier: Apache-2.0

package upset_test

import (
	"testing"
	"testing/fstest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/internal/agent/hollow/upset"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestClock: a clock that is wrong shows another time, and is right again.
func TestClock(t *testing.T) {
	right := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := upset.NewClock(right)
	before := c.Now()
	c.Set(-time.Hour)
	if got := c.Now().Sub(right.Now()); got != -time.Hour {
		t.Errorf("it is wrong by %v", got)
	}
	if got := c.Since(before); got != -time.Hour {
		t.Errorf("since the step %v have passed", got)
	}
	c.Set(0)
	if !c.Now().Equal(right.Now()) {
		t.Errorf("it shows %v", c.Now())
	}
}

// TestKernelKills: who calls dies before the call or after it, once.
func TestKernelKills(t *testing.T) {
	for name, tc := range map[string]struct{ before, spared, dies, loaded bool }{
		"before the call": {before: true, dies: true},
		"after the call":  {dies: true, loaded: true},
		"spared":          {before: true, spared: true, loaded: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &upset.Kernel{Host: fake.New(fake.Options{Release: "6.1.0"})}
			k.Kill(tc.before)
			if tc.spared {
				k.Spare()
			}
			if got := dies(t, k); got != tc.dies {
				t.Errorf("died: %t", got)
			}
			if _, live := k.Live()["driver"]; live != tc.loaded {
				t.Errorf("loaded: %t", live)
			}
			if got := k.Kills(); (got == 1) != tc.dies {
				t.Errorf("%d were killed", got)
			}
			k.Reboot("")
			if dies(t, k) {
				t.Error("the next died, too")
			}
		})
	}
}

func dies(t *testing.T, k *upset.Kernel) (died bool) {
	t.Helper()
	defer func() { died = recover() == upset.Death{} }()
	m := synth.Module{Name: "driver", Vermagic: "6.1.0 SMP preempt mod_unload modversions "}
	file, err := fstest.MapFS{"driver.ko": {Data: m.Bytes()}}.Open("driver.ko")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Load(t.Context(), host.LoadRequest{Name: "driver", File: file}); err != nil {
		t.Fatal(err)
	}
	return false
}
