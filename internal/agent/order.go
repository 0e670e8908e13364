// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
)

const (
	retryFirst = 5 * time.Second
	retryMax   = 5 * time.Minute
	// retryMaxInUse: asking the kernel again is cheap, and somebody waits for the end of a Module.
	retryMaxInUse = 30 * time.Second
	// retryForget is how long a module must stay after a repair until the next repair counts as the first again.
	retryForget = 10 * time.Minute
)

// retry remembers failures of one order, so that they are repeated ever more rarely.
type retry struct {
	// hash of the order that failed; another order starts afresh.
	hash   string
	report report
	// needs is a module whose arrival in the kernel ends the wait; may be empty.
	needs string
}

// next adds a failure to what is remembered (nil: nothing).
func (r *retry) next(hash string, now time.Time, failed report) *retry {
	failed.Attempt = 1
	if r != nil && r.hash == hash && now.Sub(r.report.Next) < retryForget {
		failed.Attempt = r.report.Attempt + 1
	}
	pause := retryMax
	if failed.State == v1beta1.AttemptInUse {
		pause = retryMaxInUse
	}
	if shift := failed.Attempt - 1; shift < 7 {
		pause = min(retryFirst<<shift, pause)
	}
	failed.Next = now.Add(pause)
	return &retry{hash: hash, report: failed}
}

// orderHash identifies what was ordered: the same hash, the same expected outcome.
func (f facts) orderHash() string {
	return hash(f.order.State, f.order.Config, deliveryID(f.order))
}

// carrierHash identifies the order together with the carrier that delivers for it: a new carrier may do better.
func (f facts) carrierHash() string {
	if f.order.Delivery == nil {
		return ""
	}
	return hash(f.orderHash(), f.order.Delivery.CarrierUID)
}

func hash(values ...any) string {
	h := sha256.New()
	// Only strings, numbers, booleans, lists and structs of them: encoding them cannot fail.
	_ = json.NewEncoder(h).Encode(values)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func keyOf(s v1beta1.NodeModuleSpec) key { return key{Namespace: s.Namespace, Name: s.Name} }

func deliveryID(s *v1beta1.NodeModuleSpec) string {
	if s.Delivery == nil {
		return ""
	}
	return s.Delivery.ID
}

// inTree are the modules to unload first, normalised.
func inTree(c v1beta1.ModuleConfig) []string {
	var names []string
	for _, n := range append([]string{c.InTreeModuleToRemove}, c.InTreeModulesToRemove...) {
		if n != "" {
			names = append(names, kmod.NormalizeName(n))
		}
	}
	return names
}

// sameKernel compares releases as upstream does: a trailing "+" does not count.
func sameKernel(a, b string) bool {
	return strings.TrimSuffix(a, "+") == strings.TrimSuffix(b, "+")
}

// sameBuild compares a module in the kernel with a recorded identity. One without has none in the kernel either.
func sameBuild(m host.Module, buildID string) bool {
	return identity(m.BuildID, m.SrcVersion) == buildID
}

// is tells whether a module in the kernel is this step's build. Without an identity, content cannot be compared: then it has to come, as the
// file does, from the kernel's own sources or from outside.
func (s planStep) is(m host.Module) bool {
	return sameBuild(m, s.BuildID) && (s.BuildID != "" || strings.Contains(m.Taint, "O") != s.InTree)
}

// identity of a build: its build ID, or its source version where there is none.
func identity(buildID, srcVersion string) string {
	if buildID == "" && srcVersion != "" {
		return "srcversion:" + srcVersion
	}
	return buildID
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
