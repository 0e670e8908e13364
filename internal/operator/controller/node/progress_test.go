// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func TestLittleProgressWaits(t *testing.T) {
	const wait = progressRest - time.Second
	written := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		nodes int32
		// change is what makes the next status another than the last one.
		change func(*v1beta1.ModuleStatus)
		// after is when it is computed; 0 is a second after the write.
		after time.Duration
		then  time.Duration
	}{
		"one of 21 nodes more":      {nodes: 21, change: more(1), then: wait},
		"one of 20 nodes more":      {nodes: 20, change: more(1)},
		"4.9 % of the nodes more":   {nodes: 1000, change: more(49), then: wait},
		"5 % of the nodes more":     {nodes: 1000, change: more(50)},
		"5 % of the nodes fewer":    {nodes: 1000, change: more(-50)},
		"pods of the device plugin": {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.DevicePlugin.AvailableNumber = 50 }},
		"nodes that it selects": {
			nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.ModuleLoader.NodesMatchingSelectorNumber -= 49 }, then: wait,
		},
		"another message":           {nodes: 1000, change: say("Loading on b"), then: wait},
		"another message of few":    {nodes: 20, change: say("Loading on b")},
		"another reason":            {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.Conditions[0].Reason = v1beta1.ReasonNoSuchDevice }},
		"another status":            {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.Conditions[0].Status = metav1.ConditionTrue }},
		"another generation":        {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.ObservedGeneration++ }},
		"one condition fewer":       {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.Conditions = nil }},
		"a rebuild that is done":    {nodes: 1000, change: func(s *v1beta1.ModuleStatus) { s.ImageRebuildTriggerGeneration = new(int) }},
		"half a minute later":       {nodes: 1000, change: more(1), after: progressRest},
		"much later":                {nodes: 1000, change: more(1), after: time.Hour},
		"a clock that was set back": {nodes: 1000, change: more(1), after: -time.Hour, then: progressRest},
	} {
		t.Run(name, func(t *testing.T) {
			before := v1beta1.ModuleStatus{
				ModuleLoader: v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: tc.nodes, DesiredNumber: tc.nodes, AvailableNumber: tc.nodes / 2},
				Conditions:   []metav1.Condition{{Type: v1beta1.ConditionReady, Reason: v1beta1.ReasonLoading, Message: "Loading on a"}},
			}
			after := *before.DeepCopy()
			tc.change(&after)
			if tc.after == 0 {
				tc.after = time.Second
			}
			var p progress
			key := types.NamespacedName{Namespace: "team", Name: "nic"}
			if got := p.rest(key, &before, &after, written); got != 0 {
				t.Errorf("a new process waits for %s", got)
			}
			p.wrote(key, written)
			if got := p.rest(key, &before, &after, written.Add(tc.after)); got != tc.then {
				t.Errorf("it waits for %s, want %s", got, tc.then)
			}
			p.forget(key)
			if got := p.rest(key, &before, &after, written.Add(tc.after)); got != 0 {
				t.Errorf("a Module of the same name waits for %s", got)
			}
		})
	}
}

func more(nodes int32) func(*v1beta1.ModuleStatus) {
	return func(s *v1beta1.ModuleStatus) { s.ModuleLoader.AvailableNumber += nodes }
}

func say(message string) func(*v1beta1.ModuleStatus) {
	return func(s *v1beta1.ModuleStatus) { s.Conditions[0].Message = message }
}
