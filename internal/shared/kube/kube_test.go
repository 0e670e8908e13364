// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/drover-project/drover/internal/shared/kube"
)

func TestModuleOwner(t *testing.T) {
	if got := kube.ModuleOwner("team", "nic"); got != "drover/team/nic" {
		t.Errorf("owner %q", got)
	}
	long := kube.ModuleOwner(strings.Repeat("n", 63), strings.Repeat("m", 63))
	if len(long) != len("drover/")+32 {
		t.Errorf("a name that is too long becomes a digest, got %q", long)
	}
	if long == kube.ModuleOwner(strings.Repeat("n", 63), strings.Repeat("m", 64)) {
		t.Error("two Modules must not share an owner")
	}
}

func TestEachGoesOnAndBoundsItself(t *testing.T) {
	var running, most, done atomic.Int32
	items := make([]int, 100)
	for i := range items {
		items[i] = i
	}
	err := kube.Each(t.Context(), 4, items, func(_ context.Context, i int) error {
		now := running.Add(1)
		for {
			seen := most.Load()
			if now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		defer running.Add(-1)
		done.Add(1)
		if i == 3 || i == 5 {
			return fmt.Errorf("item %d", i)
		}
		return nil
	})
	if done.Load() != 100 || most.Load() > 4 {
		t.Errorf("done %d of 100, at most %d at a time", done.Load(), most.Load())
	}
	for _, text := range []string{"item 3", "item 5"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v lacks %q", err, text)
		}
	}
}

func TestEachStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := kube.Each(ctx, 1, []int{1, 2}, func(context.Context, int) error {
		t.Error("called after the end")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestRecorderSpeaksOnChangeOnly(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Loaded", Status: status, Reason: reason, Message: "why"}}
	}
	cases := map[string]struct {
		before, after []metav1.Condition
		then          string
	}{
		"new and bad":    {nil, condition(metav1.ConditionFalse, "ImageNotFound"), "Warning ImageNotFound why"},
		"new and good":   {nil, condition(metav1.ConditionTrue, "Loaded"), ""},
		"the same":       {condition(metav1.ConditionFalse, "InUse"), condition(metav1.ConditionFalse, "InUse"), ""},
		"another reason": {condition(metav1.ConditionFalse, "InUse"), condition(metav1.ConditionFalse, "Timeout"), "Warning Timeout why"},
		"good at last":   {condition(metav1.ConditionFalse, "Loading"), condition(metav1.ConditionTrue, "Loaded"), "Normal Loaded why"},
		"told once": {
			nil, append([]metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "InUse", Message: "in short"}},
				condition(metav1.ConditionFalse, "InUse")...),
			"Warning InUse why",
		},
		"two things": {
			nil, append([]metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Timeout", Message: "late"}},
				condition(metav1.ConditionFalse, "InUse")...),
			"Warning Timeout late; Warning InUse why",
		},
		"on its way": {nil, condition(metav1.ConditionFalse, "Loading"), "Normal Loading why"},
		"no longer as expected": {
			condition(metav1.ConditionFalse, "Loading"), condition(metav1.ConditionFalse, "ImageNotFound"), "Warning ImageNotFound why",
		},
		"nothing any more": {condition(metav1.ConditionTrue, "Loaded"), nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fake := events.NewFakeRecorder(4)
			kube.NewRecorder(fake).Expecting(func(reason string) bool { return reason == "Loading" }).Changed(&metav1.PartialObjectMetadata{},
				tc.before, tc.after)
			close(fake.Events)
			var got []string
			for e := range fake.Events {
				got = append(got, e)
			}
			if diff := cmp.Diff(tc.then, strings.Join(got, "; ")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecorderCutsNotes(t *testing.T) {
	for name, tc := range map[string]struct{ message, then string }{
		"short enough":          {strings.Repeat("a", 1000), strings.Repeat("a", 1000)},
		"too long":              {strings.Repeat("a", 1001), strings.Repeat("a", 997) + "…"},
		"not in a character":    {strings.Repeat("ä", 501), strings.Repeat("ä", 498) + "…"},
		"what looks like verbs": {"100%s", "100%s"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := events.NewFakeRecorder(4)
			after := []metav1.Condition{{Type: "Loaded", Status: metav1.ConditionFalse, Reason: "Why", Message: tc.message}}
			kube.NewRecorder(fake).Changed(&metav1.PartialObjectMetadata{}, nil, after)
			if diff := cmp.Diff("Warning Why "+tc.then, <-fake.Events); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
