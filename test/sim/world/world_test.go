// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/test/sim/history"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

var one *Server

// server starts the API server that all tests share, one after the other.
func server(t *testing.T) *Server {
	t.Helper()
	if one == nil {
		s, err := NewServer(t.Context(), "../../..")
		if err != nil {
			t.Fatal(err)
		}
		one = s
	}
	return one
}

// play makes a history happen, and returns the digest of its trace.
func play(t *testing.T, events []history.Event) (*Violation, string) {
	t.Helper()
	w, err := server(t).New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	digest := sha256.New()
	w.Trace = func(format string, args ...any) {
		fmt.Fprintf(digest, w.Now().Format("15:04:05.000 ")+format+"\n", args...)
	}
	return w.Run(events), fmt.Sprintf("%x", digest.Sum(nil)[:8])
}

// TestASeedGivesOneHistory plays each history twice.
func TestASeedGivesOneHistory(t *testing.T) {
	digests := map[string]bool{}
	for seed := range uint64(6) {
		events := history.Generate(seed, 60, Verbs(), nil)
		_, first := play(t, events)
		_, again := play(t, events)
		if first != again {
			t.Errorf("seed %d: two histories", seed)
		}
		digests[first] = true
	}
	if len(digests) < 6 {
		t.Errorf("6 seeds give %d histories", len(digests))
	}
}

// kept are histories that broke a promise, made shorter. A promise that is known not to be kept is
// broken by its history; once it is not, its Known goes.
var kept = []struct {
	promise string
	events  []history.Event
}{
	// A paused build is corrected on a node that has lost it: the end of the pause orders the
	// withdrawn one.
	{"no-outdated-order", []history.Event{{"Calm", 0, 0}, {"UnloadPolicy", 0, 3}, {"Calm", 0, 2}, {"Pause", 0, 1}, {"Calm", 0, 0},
		{"Reboot", 0, 0}, {"UnloadPolicy", 0, 1}}},
	// An image under OnReboot, then another policy: all nodes reload at once.
	{"max-unavailable", []history.Event{{"UnloadPolicy", 0, 0}, {"Calm", 0, 0}, {"UnloadPolicy", 1, 3}}},
	// The same, while the rollout is paused.
	{"paused-rollout", []history.Event{{"Calm", 0, 1}, {"UnloadPolicy", 0, 3}, {"Calm", 0, 5}, {"PauseRollout", 0, 1}, {"UnloadPolicy", 1, 2},
		{"Calm", 0, 1}}},
	// A node has failed with it at its boot, and the others do not wait for theirs any longer.
	{"failure-halts", []history.Event{{"Calm", 0, 0}, {"UnloadPolicy", 0, 3}, {"Panic", 2, 2}, {"Calm", 0, 0}, {"PowerCut", 2, 0},
		{"UnloadPolicy", 1, 0}}},
	// What a node gets ahead is what its order, for the next boot, names already.
	{"open-orders-told", []history.Event{{"Remove", 0, 1}, {"Calm", 0, 0}, {"DiskFull", 1, 1}, {"UnloadPolicy", 0, 199}, {"Policy", 4, 0},
		{"Calm", 0, 0}, {"UnloadPolicy", 1, 0}}},
	// A node is not Ready before it has had anything: another one begins to change.
	{"not-ready-counts", []history.Event{{"NotReady", 0, 1}, {"Calm", 0, 1}, {"Image", 1, 0}, {"Calm", 0, 5}}},
	// A pod comes back under the name of one that held the kernel module.
	{"evicts-once", []history.Event{{"Calm", 0, 0}, {"Users", 0, 1}, {"Image", 1, 0}, {"Calm", 0, 5}}},
	// A change that waits for boots is taken back during a pause: nodes that have what is asked for
	// again keep the order for the other build, and a boot loads it.
	{"no-outdated-order", []history.Event{{"Lull", 0, 0}, {"UnloadPolicy", 0, 5}, {"Lull", 0, 0}, {"UnloadPolicy", 1, 0}, {"Pause", 0, 1},
		{"Image", 0, 0}, {"Calm", 0, 0}}},
	// A build that waits for users, or for boots, is corrected during a pause, whose end allows it.
	{"no-outdated-order", []history.Event{{"Calm", 0, 0}, {"Users", 0, 177}, {"Image", 2, 0}, {"Lull", 0, 0}, {"Image", 1, 0},
		{"Pause", 0, 1}, {"Calm", 0, 0}}},
	{"no-outdated-order", []history.Event{{"Lull", 0, 0}, {"Image", 1, 0}, {"UnloadPolicy", 0, 0}, {"Calm", 0, 0}, {"Image", 0, 0},
		{"Pause", 0, 1}, {"Calm", 0, 0}, {"Mapping", 1, 0}}},
	// Nodes that have nothing wait while a failure elsewhere halts the rollout.
	{"nothing-to-lose", []history.Event{{"PowerCutWhile", 0, 0}, {"Meanwhile", 215, 0}, {"Calm", 0, 0}, {"Users", 0, 89},
		{"NodeReplaced", 1, 0}, {"Insmod", 0, 0}, {"NodeReplaced", 2, 0}}},
	// A Module is deleted while its load has not returned.
	{"hung-is-left", []history.Event{{"Hang", 0, 0}, {"Calm", 0, 0}, {"Delete", 0, 0}, {"Calm", 0, 0}}},
	// A node comes back with what it had, and without its orders, while another changes: at once.
	{"max-unavailable", []history.Event{{"Calm", 0, 0}, {"NodeGone", 0, 0}, {"Plugin", 0, 1}, {"Image", 1, 0}, {"Calm", 0, 0},
		{"NodeBack", 0, 0}}},
	// An agent takes back an acknowledged unload before it sees what was unloaded by hand.
	{"live-is-so", []history.Event{{"OtherCreate", 0, 0}, {"Calm", 0, 0}, {"OtherDelete", 0, 0}, {"Calm", 0, 0}, {"OperatorClock", 0, 1},
		{"Rmmod", 0, 0}, {"Pass", 2, 0}, {"OtherCreate", 0, 0}}},
	// The rollout of a new Module is paused.
	{"paused-first-load", []history.Event{{"PauseRollout", 0, 1}, {"Calm", 0, 5}}},
	// A new Module takes out an in-tree module.
	{"first-load-turn", []history.Event{{"Remove", 0, 1}, {"Calm", 0, 5}}},
	// Another image is for the next boot.
	{"what-stays-is-labelled", []history.Event{{"Calm", 0, 5}, {"UnloadPolicy", 0, 3}, {"Calm", 0, 5}}},
	// A node comes back during a pause, with what another Module ordered, while another node changes.
	{"max-unavailable", []history.Event{{"OtherCreate", 0, 0}, {"Calm", 0, 5}, {"NodeGone", 0, 0}, {"Calm", 0, 1}, {"Hold", 1, 1},
		{"Image", 1, 0}, {"Calm", 0, 5}, {"Pause", 0, 1}, {"NodeBack", 0, 0}, {"Calm", 0, 5}, {"Pause", 0, 0}, {"Calm", 0, 1}}},
	// A change that waits for boots is reverted while the rollout is paused.
	{"what-is-asked-for-stays", []history.Event{{"Calm", 0, 5}, {"UnloadPolicy", 0, 3}, {"Calm", 0, 5}, {"PauseRollout", 0, 1},
		{"Image", 0, 0}, {"Calm", 0, 5}}},
	// A change that waits for users is.
	{"what-is-asked-for-stays", []history.Event{{"Calm", 0, 5}, {"Hold", 0, 1}, {"Image", 1, 0}, {"Calm", 0, 5}, {"PauseRollout", 0, 1},
		{"Image", 0, 0}, {"Calm", 0, 5}}},
	// Two Modules that share a limit of one node change, and one of them cannot.
	{"shared-limit", []history.Event{{"SharedLimit", 0, 0}, {"OtherCreate", 0, 0}, {"Lull", 0, 0}, {"Hold", 0, 1}, {"Image", 1, 0},
		{"Calm", 0, 5}, {"OtherImage", 1, 0}, {"Lull", 0, 0}}},
}

func TestKeptHistories(t *testing.T) {
	for _, test := range kept {
		t.Run(test.promise, func(t *testing.T) {
			v, _ := play(t, test.events)
			switch known := Known(test.promise); {
			case known && (v == nil || v.Promise != test.promise):
				t.Errorf("the promise is Known not to be kept, and this history keeps it: %v", v)
			case !known && v != nil:
				t.Error(v)
			}
		})
	}
}

// TestWhatIsToComeAtRest comes then, by itself, to a Module that all nodes have.
func TestWhatIsToComeAtRest(t *testing.T) {
	w, err := server(t).New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var lines []string
	w.Trace = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	image := uint8(slices.Index(alone, "Image"))
	if v := w.Run([]history.Event{{Verb: "Delete"}, {Verb: "NodeGone"}, {Verb: "AtRest", A: 1, B: image}}); v != nil {
		t.Fatal(v)
	}
	all := strings.Join(lines, "\n")
	_, rest, _ := strings.Cut(all, "--- all faults end")
	before, after, happens := strings.Cut(rest, "Image(1,0)")
	if !happens || !strings.Contains(before, "modules tenant/nic by end") || strings.Count(before, "minions n0 by end") == 0 {
		t.Errorf("the Module and the node do not come back before what is to come at rest:\n%s", all)
	}
	if n := strings.Count(after, "finit_module nic 1 []"); n != nodes {
		t.Errorf("%d nodes load what is named at rest:\n%s", n, all)
	}
	if away := strings.Index(before, "minions n0 by end"); away < 0 || !strings.Contains(after, "minions n0 by end") {
		t.Errorf("no node is away meanwhile:\n%s", all)
	}
}
