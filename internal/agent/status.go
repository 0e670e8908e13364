// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// outcome is what stands about one order after it was decided and done.
type outcome struct {
	loaded *loaded
	// live: loaded is complete and its main module is in the kernel, or built in.
	live bool
	// unusable: live, and a check of readyWhen fails.
	unusable bool
	report   *report
}

// statusOf computes the whole status. Times come from the journal, or from last where nothing changed since.
func statusOf(bootID string, outcomes map[key]outcome, artifacts map[string]string, last *v1beta1.NodeModulesConfigStatus, now time.Time) *v1beta1.NodeModulesConfigStatus {
	s := &v1beta1.NodeModulesConfigStatus{}
	for k, o := range outcomes {
		if o.live {
			s.Modules = append(s.Modules, v1beta1.NodeModuleStatus{
				ModuleItem: o.loaded.Item, Config: ptr.To(o.loaded.Config), BootID: bootID,
				LastTransitionTime: o.loaded.Since, Observed: o.observed(),
			})
		}
		if o.report != nil {
			s.Attempts = append(s.Attempts, attemptOf(k, *o.report, last, now))
		}
	}
	for id, digest := range artifacts {
		s.Artifacts = append(s.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: digest})
	}
	sortStatus(s)
	bound(s)
	return s
}

// observed is what was seen at the load, what brought it, and whether it can be used now.
func (o outcome) observed() *v1beta1.ObservedModule {
	if o.loaded.Observed == nil {
		return nil
	}
	seen := *o.loaded.Observed
	seen.Delivery, seen.Unusable = o.loaded.DeliveryID, o.unusable
	seen.Repairs, seen.LastRepair = o.loaded.Repairs, o.loaded.LastRepair
	return &seen
}

// maxMessage bounds a message, bytes: one that the API refuses would keep the whole node's status from being written.
const maxMessage = 2000

// clipMessage makes words that may come from an image fit for the API, which replaces what is not UTF-8.
func clipMessage(message string) string {
	message = strings.ToValidUTF8(message, "?")
	if len(message) <= maxMessage {
		return message
	}
	return clip(message, maxMessage) + "…"
}

func attemptOf(k key, r report, last *v1beta1.NodeModulesConfigStatus, now time.Time) v1beta1.NodeModuleAttempt {
	a := v1beta1.NodeModuleAttempt{
		Namespace: k.Namespace, Name: k.Name,
		State: r.State, Reason: r.Reason, Message: clipMessage(r.Message), Attempt: r.Attempt,
		Strikes: r.Strikes, Strike: r.Strike, Holders: r.Holders,
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	}
	if !r.Next.IsZero() {
		next := metav1.NewTime(r.Next).Rfc3339Copy()
		a.NextRetry = &next
	}
	for _, old := range last.Attempts {
		if old.Namespace == k.Namespace && old.Name == k.Name && old.State == a.State && old.Reason == a.Reason {
			a.LastTransitionTime = old.LastTransitionTime
		}
	}
	return a
}

// needsWrite tells whether want says anything that last does not. A further failure of the same kind is news only once
// what last says of it is outdated; tidying is none: acknowledged unloads of orders that are gone, and artifacts that are held but no longer needed,
// leave with the next write that has another cause.
func needsWrite(last, want *v1beta1.NodeModulesConfigStatus, ordered func(key) bool, held map[string]string, now time.Time) bool {
	a, b := last.DeepCopy(), want.DeepCopy()
	a.Attempts = slices.DeleteFunc(a.Attempts, func(at v1beta1.NodeModuleAttempt) bool {
		return at.State == v1beta1.AttemptAbsent && !ordered(key{at.Namespace, at.Name})
	})
	a.Artifacts = slices.DeleteFunc(a.Artifacts, func(art v1beta1.NodeArtifact) bool {
		return held[art.ID] == art.Digest && !slices.Contains(b.Artifacts, art)
	})
	sortStatus(a)
	sortStatus(b)
	if !slices.EqualFunc(a.Attempts, b.Attempts, func(x, y v1beta1.NodeModuleAttempt) bool { return !outdated(x, y, now) }) {
		return true
	}
	for _, s := range []*v1beta1.NodeModulesConfigStatus{a, b} {
		for i := range s.Attempts {
			at := &s.Attempts[i]
			at.Message, _, _ = strings.Cut(at.Message, "\n")
			at.Attempt, at.NextRetry, at.LastTransitionTime = 0, nil, metav1.Time{}
		}
	}
	return !apiequality.Semantic.DeepEqual(a, b)
}

// outdated tells whether a count of tries and the time of the next one have misled readers for long enough to be written again: so there is
// at most one such write in retryMax, however often it is tried.
func outdated(last, want v1beta1.NodeModuleAttempt, now time.Time) bool {
	return last.Attempt != want.Attempt && last.NextRetry != nil && now.Sub(last.NextRetry.Time) >= retryMax
}

func sortStatus(s *v1beta1.NodeModulesConfigStatus) {
	slices.SortFunc(s.Modules, func(a, b v1beta1.NodeModuleStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Attempts, func(a, b v1beta1.NodeModuleAttempt) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Artifacts, func(a, b v1beta1.NodeArtifact) int { return strings.Compare(a.ID, b.ID) })
}
