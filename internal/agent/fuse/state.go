// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// state is everything the fuse knows. Its methods decide, and touch nothing else.
type state struct {
	BootID  string           `json:"bootID,omitempty"`  // of the boot that Intent and Live in Builds belong to
	Stopped bool             `json:"stopped,omitempty"` // that boot's last agent was told to stop
	Builds  map[Build]*entry `json:"-"`
}

// entry is what is known of one build.
type entry struct {
	Intent time.Time `json:"intent,omitzero"` // when a load began that has not returned
	Live   time.Time `json:"live,omitzero"`   // when a load returned with the module live; zero once it has settled
	// Strikes in a row, the last one at Struck, for the load that began at Began.
	Strikes int       `json:"strikes,omitempty"`
	Struck  time.Time `json:"struck,omitzero"`
	Began   time.Time `json:"began,omitzero"`
	Early   int       `json:"early,omitempty"` // boots in a row that ended while Live was set
	// Quarantined is when the last quarantine began; Evidence: because a kernel named the module.
	Quarantined time.Time `json:"quarantined,omitzero"`
	Evidence    bool      `json:"evidence,omitempty"`
	Excused     time.Time `json:"excused,omitzero"` // when strikes were last taken back
}

// Outcome is what Boot made of one build.
type Outcome string

// What Boot makes of builds.
const (
	Resumed     Outcome = "Resumed"     // the agent died during the load, in this boot: look at the kernel, then call Done
	Spared      Outcome = "Spared"      // something else explains why the boot ended
	Struck      Outcome = "Struck"      // the build may be loaded again after RetryAfter
	Quarantined Outcome = "Quarantined" // by evidence, or by StrikeLimit strikes in a row
)

// Verdict is what Boot says of one build whose load had not returned or not settled.
type Verdict struct {
	Build    Build
	Outcome  Outcome
	Strikes  int  // in a row, this one included
	Evidence bool // a dump names the module
}

// Hold says why a build may not be loaded now. It is an error so that Intent can return it.
type Hold struct {
	Build       Build
	Quarantined bool      // else the build only waits, after a strike or for an earlier load
	Until       time.Time // when the hold ends by itself; zero: when an earlier load of the module returns
	Why         string    // a clause for people, the same for as long as the cause is
}

func (h Hold) Error() string {
	end := "next try at"
	switch {
	case h.Until.IsZero():
		return h.Build.String() + ": " + h.Why
	case h.Quarantined:
		end = "quarantined until"
	}
	return fmt.Sprintf("%s: %s; %s %s", h.Build, h.Why, end, h.Until.UTC().Format(time.RFC3339))
}

func (b Build) normal() Build {
	b.Module = normalName(b.Module)
	return b
}

func normalName(name string) string { return strings.ReplaceAll(name, "-", "_") }

func compare(a, b Build) int {
	return cmp.Or(cmp.Compare(a.Module, b.Module), cmp.Compare(a.BuildID, b.BuildID))
}

// ordered lists the builds so that results do not depend on the map.
func (s *state) ordered() []Build { return slices.SortedFunc(maps.Keys(s.Builds), compare) }

func (s *state) clone() state {
	c := *s
	c.Builds = make(map[Build]*entry, len(s.Builds))
	for b, e := range s.Builds {
		c.Builds[b] = new(*e)
	}
	return c
}

func (s *state) of(b Build) *entry {
	e := s.Builds[b]
	if e == nil {
		e = &entry{}
		s.Builds[b] = e
	}
	return e
}

// boot judges what was open if this is a new boot. It tells whether the state changed.
func (s *state) boot(bootID string, dumps []Evidence, now time.Time) ([]Verdict, bool) {
	if s.BootID == bootID {
		changed := s.Stopped
		s.Stopped = false
		return s.resumed(), changed
	}
	s.notAfter(now)
	named := func(b Build, e *entry) bool { return e.named(b.Module, dumps) }
	// A load that had not returned is a likelier cause than those that had.
	explained, loading := s.Stopped, false
	for b, e := range s.Builds {
		explained, loading = explained || named(b, e), loading || !e.Intent.IsZero()
	}
	var verdicts []Verdict
	for _, b := range s.ordered() {
		e := s.Builds[b]
		v := Verdict{Build: b, Evidence: named(b, e)}
		v.Outcome = e.judge(v.Evidence, explained || loading && e.Intent.IsZero(), now)
		v.Strikes = e.Strikes
		if v.Outcome != "" {
			verdicts = append(verdicts, v)
		}
		e.Intent, e.Live = time.Time{}, time.Time{}
	}
	s.BootID, s.Stopped = bootID, false
	return verdicts, true
}

func (s *state) resumed() []Verdict {
	var verdicts []Verdict
	for _, b := range s.ordered() {
		if e := s.Builds[b]; !e.Intent.IsZero() {
			verdicts = append(verdicts, Verdict{Build: b, Outcome: Resumed, Strikes: e.Strikes})
		}
	}
	return verdicts
}

// notAfter sets times that are in the future to now. Those of loads stay: they are compared with
// dumps, which had the same clock.
func (s *state) notAfter(now time.Time) {
	for _, e := range s.Builds {
		for _, t := range []*time.Time{&e.Struck, &e.Quarantined, &e.Excused} {
			if t.After(now) {
				*t = now
			}
		}
	}
}

// judge decides what the end of a boot means for the build; "" without a load open or settling.
func (e *entry) judge(named, explained bool, now time.Time) Outcome {
	switch loading := !e.Intent.IsZero(); {
	case !loading && e.Live.IsZero():
		return ""
	case named:
		e.quarantine(now, true)
		return Quarantined
	case explained:
		return Spared
	case !loading:
		if e.Early++; e.Early < EarlyLimit {
			return Spared
		}
	}
	e.Strikes++
	e.Struck, e.Began = now, e.began()
	if e.Strikes < StrikeLimit {
		return Struck
	}
	e.quarantine(now, false)
	return Quarantined
}

// named tells whether a dump that is not older than the load names the module.
func (e *entry) named(module string, dumps []Evidence) bool {
	began := e.began()
	if began.IsZero() {
		return false
	}
	return slices.ContainsFunc(dumps, func(d Evidence) bool {
		return normalName(d.Module) == module && (d.At.IsZero() || !d.At.Before(began))
	})
}

// began is when the load that is open began, or when the one that is settling returned.
func (e *entry) began() time.Time {
	if e.Intent.IsZero() {
		return e.Live
	}
	return e.Intent
}

func (e *entry) quarantine(now time.Time, evidence bool) { e.Quarantined, e.Evidence = now, evidence }

// quarantined returns until when the build is quarantined; zero if it is not.
func (e *entry) quarantined(now time.Time) time.Time {
	if until := e.Quarantined.Add(QuarantineFor); !e.Quarantined.IsZero() && now.Before(until) {
		return until
	}
	return time.Time{}
}

func (s *state) allowed(b Build, now time.Time) (Hold, bool) {
	for _, other := range s.ordered() {
		if other.Module == b.Module && !s.Builds[other].Intent.IsZero() {
			return Hold{Build: b, Why: "an earlier load of " + other.String() + " has not returned"}, false
		}
	}
	e := s.Builds[b]
	if e == nil {
		return Hold{}, true
	}
	if until := e.quarantined(now); !until.IsZero() {
		why := fmt.Sprintf("the node went down during or soon after a load, %d times in a row", e.Strikes)
		if e.Evidence {
			why = "the kernel crashed and named the module"
		}
		return Hold{Build: b, Quarantined: true, Until: until, Why: why}, false
	}
	if until := e.Struck.Add(RetryAfter); !e.Struck.IsZero() && now.Before(until) {
		return Hold{Build: b, Until: until, Why: "the node went down during or soon after the last load"}, false
	}
	return Hold{}, true
}

// intend opens an intent, unless as many are open as can be remembered.
func (s *state) intend(b Build, now time.Time) bool {
	open := 0
	for _, e := range s.Builds {
		if !e.Intent.IsZero() {
			open++
		}
	}
	if open >= MaxBuilds {
		return false
	}
	e := s.of(b)
	e.Intent, e.Live = now, time.Time{}
	s.Stopped = false
	return true
}

func (s *state) done(b Build, live bool, now time.Time) bool {
	e := s.Builds[b]
	if e == nil || e.Intent.IsZero() {
		return false
	}
	e.Intent = time.Time{}
	if live {
		e.Live = now
	}
	return true
}

func (s *state) settle(now time.Time) (next time.Time, changed bool) {
	for b, e := range s.Builds {
		if e.Live.IsZero() {
			continue
		}
		if e.Live.After(now) {
			e.Live = now
		}
		if at := e.Live.Add(SettleAfter); now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		s.Builds[b] = &entry{Excused: e.Excused, Quarantined: e.Quarantined, Evidence: e.Evidence}
		changed = true
	}
	return next, changed
}

func (s *state) release(b Build) bool {
	e := s.Builds[b]
	if e == nil {
		return false
	}
	s.Builds[b] = &entry{Intent: e.Intent, Live: e.Live}
	return true
}

func (s *state) excuse(b Build, now time.Time) bool {
	e := s.Builds[b]
	if e == nil || e.Strikes == 0 && e.Early == 0 || !e.Excused.IsZero() && now.Before(e.Excused.Add(ExcuseEvery)) {
		return false
	}
	if e.Evidence && !e.quarantined(now).IsZero() {
		return false
	}
	s.Builds[b] = &entry{Intent: e.Intent, Live: e.Live, Excused: now}
	return true
}

func (s *state) list(now time.Time) []Status {
	var all []Status
	for _, b := range s.ordered() {
		e := s.Builds[b]
		st := Status{Build: b, Loading: !e.Intent.IsZero(), Strikes: e.Strikes, Began: e.Began, Quarantined: e.quarantined(now)}
		st.Evidence = e.Evidence && !st.Quarantined.IsZero()
		if st.Loading || st.Strikes > 0 || !st.Quarantined.IsZero() {
			all = append(all, st)
		}
	}
	return all
}

// prune forgets builds of rank 0 and, above MaxBuilds, of the lowest rank, but no open intent.
func (s *state) prune(now time.Time) {
	for b, e := range s.Builds {
		if e.rank(now) == 0 {
			delete(s.Builds, b)
		}
	}
	excess := len(s.Builds) - MaxBuilds
	if excess <= 0 {
		return
	}
	order := s.ordered()
	slices.SortStableFunc(order, func(a, b Build) int {
		x, y := s.Builds[a], s.Builds[b]
		return cmp.Or(cmp.Compare(x.rank(now), y.rank(now)), x.touched().Compare(y.touched()))
	})
	for _, b := range order[:excess] {
		delete(s.Builds, b)
	}
}

// rank is how much would be lost with the entry.
func (e *entry) rank(now time.Time) int {
	switch {
	case !e.Intent.IsZero():
		return 4 // an open intent
	case !e.quarantined(now).IsZero():
		return 3 // a quarantine
	case e.Strikes > 0 || e.Early > 0:
		return 2 // strikes
	case !e.Live.IsZero() || !e.Excused.IsZero() && now.Before(e.Excused.Add(ExcuseEvery)):
		return 1 // an excuse, or a load that settles
	default:
		return 0
	}
}

func (e *entry) touched() time.Time {
	return slices.MaxFunc([]time.Time{e.Intent, e.Live, e.Struck, e.Quarantined, e.Excused}, time.Time.Compare)
}
