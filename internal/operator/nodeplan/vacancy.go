// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// maxPods is how many pods a message about a drain names.
	maxPods = 3
	// Ending and unasked are said of a pod.
	Ending, unasked = "is ending", "not asked yet"
)

// Vacancy is what came of a node's drain in one pass.
type Vacancy struct {
	// Refused is what the API server said to the cordon, or to the question for the pods.
	Refused string
	// Outdated: the node changed meanwhile.
	Outdated bool
	// Spared: one of the pods is not to be evicted. Kept: none is evicted.
	Spared, Kept bool
	// Pods that have to leave.
	Pods []Leaver
	// Seen is whom the agent means, where it tells no UIDs and this pass looked; or nil.
	Seen *Seen
}

// Leaver is a pod that has to leave.
type Leaver struct {
	Pod *corev1.Pod
	// Said is what it waits for; empty: it is gone. Refused: it is not allowed to go.
	Said    string
	Refused bool
}

func (l *Leaver) text() string { return l.Pod.Namespace + "/" + l.Pod.Name + " (" + l.Said + ")" }

// InTheWay reports whether a pod has to leave a node. An agent names pods of its own node only.
func (d *Drain) InTheWay(node string, pod *corev1.Pod) bool {
	named := d.Empty || slices.ContainsFunc(d.Evict, func(m drain.Meant) bool { return m.Is(pod) })
	return named && pod.Spec.NodeName == node && drain.Goes(pod)
}

// Vacancy says what becomes of the pods that are in the way.
func (d *Drain) Vacancy(pods []corev1.Pod) Vacancy {
	var v Vacancy
	for i := range pods {
		l := Leaver{Pod: &pods[i], Said: unasked}
		if drain.Leaving(l.Pod) {
			l.Said = Ending
		} else if verdict, why := drain.Judge(l.Pod, d.Options); verdict != drain.Evict {
			l.Said, l.Refused, v.Kept = why, verdict == drain.Spare, true
			v.Spared = v.Spared || l.Refused
		}
		v.Pods = append(v.Pods, l)
	}
	return v
}

// open reports whether something keeps the node from its change.
func (v *Vacancy) open() bool { return v.Refused != "" || v.Outdated || len(v.Pods) > 0 }

// problem is what keeps a node from being emptied, refusals first; nil: nothing to tell.
func (v *Vacancy) problem(late bool, timeout time.Duration) *reasons.Problem {
	if v.Refused != "" {
		return &reasons.Problem{Reason: v1beta1.ReasonDrainBlocked, Message: "spec.rollout.drain: " + v.Refused}
	}
	var waits, refused []string
	for i := range v.Pods {
		switch l := &v.Pods[i]; {
		case l.Refused:
			refused = append(refused, l.text())
		case l.Said != "":
			waits = append(waits, l.text())
		}
	}
	slices.Sort(waits)
	slices.Sort(refused)
	pods := words.List(slices.Concat(refused, waits), maxPods)
	if pods == "" {
		return nil
	}
	since := ""
	if late {
		since = ", for longer than " + timeout.String()
	}
	problem := &reasons.Problem{
		Reason: v1beta1.ReasonInUse, Message: "spec.rollout.drain waits for pods to leave" + since + ": " + pods,
	}
	if late || len(refused) > 0 {
		problem.Reason = v1beta1.ReasonDrainBlocked
	}
	return problem
}

// Wait is what the process knows of a node that is emptied: how long that takes, and who is next. A
// new process begins anew.
type Wait struct {
	// Since is when it was first waited for; zero: the node is not being emptied.
	Since time.Time
	// Passed is when pods had not left in time and the node passed its turn, and Told is why.
	Passed time.Time
	Told   *reasons.Problem
}

// over reports whether the node has passed its turn and has not got it again.
func (w Wait) over() bool { return !w.Passed.IsZero() && w.Since.IsZero() }

// Vacated is what keeps a node from its change after its drain was tried, or nil, and what is to be
// remembered of it. v is nil where there was nothing to do.
func (pl *Plan) Vacated(v *Vacancy, known Wait, now time.Time) (*Hold, Wait) {
	switch {
	case v != nil && v.open():
	case !known.Passed.IsZero() && pl.Turn.Waits:
		known.Since = time.Time{}
		return nil, known
	default:
		return nil, Wait{}
	}
	timeout := v1beta1.DefaultDrainTimeout
	if t := pl.Drain.Options.Timeout; t != nil {
		timeout = t.Duration
	}
	if known.Since.IsZero() {
		known.Since = now
	}
	over := !now.Before(known.Since.Add(timeout))
	hold := &Hold{By: Pods, Problem: v.problem(over || !known.Passed.IsZero(), timeout)}
	if pl.Drain.Empty && hold.Problem != nil && over {
		known = Wait{Passed: now, Told: hold.Problem}
	}
	return hold, known
}
