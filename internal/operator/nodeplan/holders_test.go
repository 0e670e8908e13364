// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// podOn is a ReplicaSet's or StatefulSet's pod.
func podOn(node, name string, uid types.UID) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: name, UID: uid}, Spec: corev1.PodSpec{NodeName: node}}
}

// heldBy is a node whose agent says that pods hold the kernel module; try counts.
func heldBy(try int32, pods, uids []string) func(*scene) {
	return func(s *scene) {
		s.module.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: new(intstr.FromInt32(1)), Drain: v1beta1.DrainHolders}
		s.node.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: v1beta1.AttemptInUse,
			Attempt: try, Holders: pods, HolderUIDs: uids}}
	}
}

// TestAReportMeansThePodsOfItsTime: by UID; or, of an older agent, those that ran when the process
// first looked. Each step is a pass, and what it remembers is the next one's.
func TestAReportMeansThePodsOfItsTime(t *testing.T) {
	db, successor, other := podOn("n", "db-0", "u1"), podOn("n", "db-0", "u2"), podOn("n", "db-1", "u3")
	away := podOn("m", "db-0", "u1")
	names, uid := []string{"users/db-0"}, []string{"u1"}
	type step struct {
		report func(*scene)
		pods   []corev1.Pod
		then   types.UID // the one that is in the way; empty: none is
	}
	cases := map[string][]step{
		"by UID": {
			{heldBy(1, names, uid), []corev1.Pod{db, other}, "u1"},
			{heldBy(1, names, uid), []corev1.Pod{successor, other}, ""},
			{heldBy(2, names, []string{"u2"}), []corev1.Pod{successor, other}, "u2"},
		},
		"by UID, too late":           {{heldBy(1, names, uid), []corev1.Pod{successor}, ""}},
		"by UID, of another node":    {{heldBy(1, names, uid), []corev1.Pod{away}, ""}},
		"by UID, of another name":    {{heldBy(1, names, []string{"u3"}), []corev1.Pod{db, other}, ""}},
		"by name, of another node":   {{heldBy(1, names, nil), []corev1.Pod{away}, ""}},
		"by name, until it has gone": {{heldBy(1, names, nil), []corev1.Pod{db}, "u1"}, {heldBy(1, names, nil), []corev1.Pod{db}, "u1"}},
		"by name": {
			{heldBy(1, names, nil), []corev1.Pod{db, other}, "u1"},
			{heldBy(1, names, nil), []corev1.Pod{other}, ""},
			{heldBy(1, names, nil), []corev1.Pod{successor, other}, ""},
			{heldBy(2, names, nil), []corev1.Pod{successor, other}, "u2"},
		},
		"by name, nobody ran": {
			{heldBy(1, names, nil), []corev1.Pod{other}, ""},
			{heldBy(1, names, nil), []corev1.Pod{db, other}, ""},
		},
		"an agent that tells UIDs follows an older one": {
			{heldBy(1, names, nil), []corev1.Pod{db}, "u1"},
			{heldBy(1, names, []string{"u2"}), []corev1.Pod{successor}, "u2"},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			memory := map[string]Seen{}
			for i, step := range steps {
				s := driven(t)
				s.module.Spec.DRA, s.devices = nil, Devices{}
				step.report(s)
				s.node.Read(key, s.node.Config)
				p := Pass{Key: key, Module: s.module, Now: noon, Memory: Memory{Seen: memory}}
				pl := Plan{Node: &s.node}
				pl.Drain = p.Drain(&s.node, &Aim{}, &Turn{}, &Delivery{})
				var inTheWay []corev1.Pod
				var got types.UID
				for _, pod := range step.pods {
					if pl.Drain.InTheWay("n", &pod) {
						inTheWay, got = append(inTheWay, pod), got+pod.UID
					}
				}
				v := pl.Drain.Vacancy(inTheWay)
				pl.Look(&v, inTheWay)
				if got != step.then {
					t.Errorf("pass %d: pod %q is in the way instead of %q", i, got, step.then)
				}
				next := map[string]Seen{}
				if seen := pl.Saw(&v, memory["n"]); seen != nil {
					next["n"] = *seen
				}
				memory = next
			}
		})
	}
}

// TestWhomAReportMeansIsKept while it stands, also in a pass that does not look.
func TestWhomAReportMeansIsKept(t *testing.T) {
	s := driven(t)
	heldBy(1, []string{"users/db-0"}, nil)(s)
	s.node.Read(key, s.node.Config)
	pl, known := Plan{Node: &s.node}, Seen{Report: *s.node.Attempt.DeepCopy()}
	if pl.Saw(nil, known) == nil || pl.Saw(&Vacancy{}, known) == nil {
		t.Error("it is forgotten")
	}
	known.Report.Attempt++
	if seen := pl.Saw(nil, known); seen != nil {
		t.Errorf("of an earlier report, it keeps %+v", seen)
	}
	if seen := (&Plan{Node: &Node{}}).Saw(nil, Seen{}); seen != nil {
		t.Errorf("without a report, it keeps %+v", seen)
	}
}
