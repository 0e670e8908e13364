// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// Worked is an order that was carried out.
type Worked struct {
	Item       v1beta1.ModuleItem   `json:"item"`
	Config     v1beta1.ModuleConfig `json:"config"`
	DeliveryID string               `json:"deliveryID,omitempty"`
}

// Order is what now, the order as it stands, was when it worked.
func (w *Worked) Order(now *v1beta1.NodeModuleSpec) *v1beta1.NodeModuleSpec {
	if now == nil {
		return nil
	}
	then := *now
	then.ModuleItem, then.Config, then.Delivery = w.Item, w.Config, &v1beta1.Delivery{ID: w.DeliveryID}
	return &then
}

// LoadedBy tells whether l is a load of that order.
func (w *Worked) LoadedBy(l *Load) bool {
	return l != nil && l.DeliveryID == w.DeliveryID && orders.SameConfig(l.Config, w.Config)
}

// NoteWorked notes that an order is carried out.
func (j *Journal) NoteWorked(t orders.Task, l *Load) {
	if t.Previous {
		return
	}
	delete(j.RolledBack, t.Key)
	if l.BuiltIn {
		delete(j.Worked, t.Key)
		return
	}
	put(&j.Worked, t.Key, &Worked{Item: l.Item, Config: l.Config, DeliveryID: l.DeliveryID})
}

const (
	// rolledBackFirst and rolledBackMax bound the pause: each try takes out the previous order.
	rolledBackFirst = time.Hour
	rolledBackMax   = 24 * time.Hour
	maxRefusals     = 64 // builds that are remembered
)

// final are the reasons for which a kernel refuses the same build again until its next boot.
var final = []string{
	v1beta1.ReasonSignatureRejected, v1beta1.ReasonLockedDown, v1beta1.ReasonLoadPin, v1beta1.ReasonVermagicMismatch,
	v1beta1.ReasonUnknownSymbol, v1beta1.ReasonModulesDisabled, v1beta1.ReasonDependencyConflict,
}

// RolledBack is an order that failed where a previous one could be brought back.
type RolledBack struct {
	Hash    string `json:"hash"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Times   int    `json:"times"` // that it failed in this boot
	// Until is when it is tried again; zero: not in this boot, for the kernel's answer is final.
	Until time.Time `json:"until,omitzero"`
}

// Over tells whether the pause is. A clock that went back after the roll-back, by more than any
// pause lasts, would make it years; it is over then.
func (r RolledBack) Over(now time.Time) bool {
	return !r.Until.IsZero() && (!now.Before(r.Until) || r.Until.Sub(now) > rolledBackMax)
}

// RollBack remembers that an order failed where a previous one can be brought back.
func (j *Journal) RollBack(k orders.Key, hash string, a orders.Attempt, now time.Time) {
	was, next := j.RolledBack[k], RolledBack{Hash: hash, Reason: a.Reason, Message: a.Message, Times: 1}
	if was.Hash == hash {
		next.Times += was.Times
	}
	if !slices.Contains(final, a.Reason) {
		next.Until = now.Add(min(rolledBackFirst<<min(next.Times-1, 6), rolledBackMax))
	}
	put(&j.RolledBack, k, next)
}

// Refusal is the kernel's answer to a build. It will not be another one in this boot.
type Refusal struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Among is the digest of the modules in the kernel: a missing symbol may come with another.
	Among string `json:"among,omitempty"`
	// Delivery that was refused for its signature. Signed anew, a build keeps its build ID.
	Delivery string `json:"delivery,omitempty"`
	Against  string `json:"against,omitempty"` // the name and build of the live module that it does not fit
}

// Refuse keeps a final refusal of a build, with what matters for it. It tells whether it did.
func (j *Journal) Refuse(build string, a orders.Attempt, known Refusal) bool {
	if !slices.Contains(final, a.Reason) {
		return false
	}
	if len(j.Refused) >= maxRefusals || j.Refused == nil {
		j.Refused = map[string]Refusal{}
	}
	if a.Reason != v1beta1.ReasonUnknownSymbol && a.Reason != v1beta1.ReasonDependencyConflict {
		known.Among = ""
	}
	if a.Reason != v1beta1.ReasonSignatureRejected && a.Reason != v1beta1.ReasonLockedDown {
		known.Delivery = ""
	}
	known.Reason, known.Message = a.Reason, a.Message
	j.Refused[build] = known
	return true
}

// RetriedFile is the name of the file of retries in the state directory.
const RetriedFile = "retry.json"

const (
	retriedSchema = 2
	maxRetried    = 256 // are remembered; above it, those of orders that are gone go
)

// Retried are the requests for a retry that were carried out, told apart by their time. They are on
// disk before the load that follows: a node that goes down in it must not try it for them again.
type Retried struct {
	Last map[orders.Key]time.Time `json:"last,omitempty"`
	// Heard are the requests for which this process has forgotten the pause; the rest of what there
	// is to forget is known once the order's modules are.
	Heard map[orders.Key]time.Time `json:"-"`

	disk disk
}

// ReadRetried returns an empty memory when there is none. One that cannot be trusted is moved
// aside, which the error says: requests that still stand are then carried out again.
func ReadRetried(dir string, sync statefile.Sync) (*Retried, error) {
	r := &Retried{}
	_, err := statefile.Read(dir, RetriedFile, retriedSchema, r)
	if err != nil || r.Last == nil {
		r = &Retried{Last: map[orders.Key]time.Time{}}
	}
	r.Heard, r.disk = map[orders.Key]time.Time{}, disk{dir, sync}
	return r, err
}

// Of is the request that was carried out last for an order; nil: none.
func (r *Retried) Of(k orders.Key) *metav1.Time {
	at, ok := r.Last[k]
	if !ok {
		return nil
	}
	return new(metav1.NewTime(at.UTC()).Rfc3339Copy())
}

// Note notes on disk that a request was carried out.
func (r *Retried) Note(k orders.Key, asked time.Time, ordered func(orders.Key) bool) error {
	before := maps.Clone(r.Last)
	r.Last[k] = asked
	if len(r.Last) > maxRetried {
		maps.DeleteFunc(r.Last, func(k orders.Key, _ time.Time) bool { return !ordered(k) })
	}
	err := statefile.Write(r.disk.dir, RetriedFile, retriedSchema, r, r.disk.sync)
	if err != nil {
		r.Last = before // else it would count again after a boot
	}
	return err
}
