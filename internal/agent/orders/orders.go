// SPDX-License-Identifier: Apache-2.0

// Package orders has what the parts of the agent share about an order: its key, its form, what is
// said of it, and what tells builds apart.
package orders

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Key names an order: the Module it comes from.
type Key struct {
	Namespace, Name string
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// KeyOf is the key of an entry.
func KeyOf(s *v1beta1.NodeModuleSpec) Key { return Key{Namespace: s.Namespace, Name: s.Name} }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// MarshalText makes Key usable as a JSON object's key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote. Neither part of a Module's identity can hold a slash.
func (k *Key) UnmarshalText(text []byte) error {
	var ok bool
	if k.Namespace, k.Name, ok = strings.Cut(string(text), "/"); !ok {
		return fmt.Errorf("%q is not namespace/name", text)
	}
	return nil
}

// Task is an order as it stands or, Previous, as it last worked: it may serve meanwhile.
type Task struct {
	Key      Key
	Previous bool
}

// Absent tells whether an order is one to unload; nil is no order.
func Absent(o *v1beta1.NodeModuleSpec) bool { return o != nil && o.State == v1beta1.NodeModuleAbsent }

// Present tells whether an order is one to load; nil is no order.
func Present(o *v1beta1.NodeModuleSpec) bool { return o != nil && o.State != v1beta1.NodeModuleAbsent }

// CarrierHash identifies the order and the carrier that delivers for it: a new one may do better.
func CarrierHash(o *v1beta1.NodeModuleSpec) string {
	if o.Delivery == nil {
		return ""
	}
	return orderhash.Digest(orderhash.Of(o), o.Delivery.CarrierUID)
}

// DeliveryID is the delivery that an order needs, or "".
func DeliveryID(o *v1beta1.NodeModuleSpec) string {
	if o.Delivery == nil {
		return ""
	}
	return o.Delivery.ID
}

// NotReturned is said of a module that comes or goes: nothing is done about it meanwhile.
func NotReturned(name string) *Attempt {
	return Waiting(v1beta1.ReasonTimeout, "Module %s is in the kernel and its init or exit function has not returned.", name)
}

// ParameterName is the name in one of modprobe.parameters, normalised as the kernel compares them.
func ParameterName(parameter string) string {
	name, _, _ := strings.Cut(parameter, "=")
	return kmod.NormalizeName(name)
}

// InTree are the modules to unload first, normalised.
func InTree(c v1beta1.ModuleConfig) []string {
	var names []string
	for _, n := range append([]string{c.InTreeModuleToRemove}, c.InTreeModulesToRemove...) {
		if n != "" {
			names = append(names, kmod.NormalizeName(n))
		}
	}
	return names
}

// SameConfig tells whether two configs mean the same. One can be of an earlier version of the
// operator, or of another operator, and differ in its form.
func SameConfig(a, b v1beta1.ModuleConfig) bool {
	return apiequality.Semantic.DeepEqual(kernel.Canonical(a), kernel.Canonical(b))
}

// Identity of a build: its build ID, or its source version where there is none.
func Identity(buildID, srcVersion string) string {
	if buildID == "" && srcVersion != "" {
		return "srcversion:" + srcVersion
	}
	return buildID
}

// IdentityOf is the identity of a module in the kernel.
func IdentityOf(m host.Module) string { return Identity(m.BuildID, m.SrcVersion) }

// Attempt is an entry of status.attempts without its times.
type Attempt struct {
	State   v1beta1.AttemptState
	Reason  string
	Message string
	Tries   int32
	Next    time.Time // when it is tried again; zero: no such time
	Holders []Holder  // pods that use what has to leave the kernel
	Strikes int32     // where the fuse holds a build back, and the last of them
	Strike  *v1beta1.Strike
}

// Holder is a pod that uses what has to leave the kernel.
type Holder struct {
	// Pod as namespace/name, and what tells it from others that have or had its name.
	Pod, UID string
}

// Failed is an attempt that failed.
func Failed(reason, format string, args ...any) *Attempt {
	return &Attempt{State: v1beta1.AttemptFailed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Waiting is an attempt that waits for something.
func Waiting(reason, format string, args ...any) *Attempt {
	return &Attempt{State: v1beta1.AttemptWaiting, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Pauses between two tries of an order.
const (
	retryFirst = 5 * time.Second
	RetryMax   = 5 * time.Minute
	// retryMaxInUse: asking the kernel again is cheap, and somebody waits for the end of a Module.
	retryMaxInUse = 30 * time.Second
	// RetryForget is how long a module must stay until the next repair counts as the first again.
	RetryForget = 10 * time.Minute
)

// Failure remembers failures of one order, so that they are repeated ever more rarely.
type Failure struct {
	Hash    string // of the order that failed; another order starts afresh
	Attempt Attempt
	Needs   string // a module whose arrival in the kernel ends the wait; may be empty
}

// Again adds a failed attempt to what is remembered (nil: nothing).
func (f *Failure) Again(hash string, now time.Time, failed Attempt) *Failure {
	failed.Tries = 1
	if f != nil && f.Hash == hash && now.Sub(f.Attempt.Next) < RetryForget {
		failed.Tries = f.Attempt.Tries + 1
	}
	pause := RetryMax
	if failed.State == v1beta1.AttemptInUse {
		pause = retryMaxInUse
	}
	if shift := failed.Tries - 1; shift < 7 {
		pause = min(retryFirst<<shift, pause)
	}
	failed.Next = now.Add(pause)
	return &Failure{Hash: hash, Attempt: failed}
}
