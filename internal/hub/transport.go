// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Target is a cluster that a transport reaches.
type Target struct {
	Name   string
	Labels map[string]string
	// Claims are what the cluster reports, by name: [KernelsClaim], [PlatformsClaim].
	Claims map[string]string
	// Unreachable is why the hub does not reach it; empty: it does.
	Unreachable string
	// Unknown: this process does not know yet what the cluster runs and has.
	Unknown bool
	// New: this process has begun to look before the cluster was there, and has sent it nothing.
	New bool
}

// Parcel is what a cluster was last sent for a ManagedClusterModule, and what became of it.
type Parcel struct {
	// Module is what was sent, with its annotations.
	Module *v1beta1.Module
	Report Report
	// Going: it is being deleted there. Nothing: the cluster has none, as it refused it.
	Going, Nothing bool
	// Away is why the hub does not reach the cluster to take it back; empty: it does.
	Away string
}

// ErrAbsent says that what a transport needs is not installed on the hub yet.
var ErrAbsent = errors.New("is not installed")

// ErrBeginning says that a transport has not looked at its clusters yet. That it has is an event.
var ErrBeginning = errors.New("has not looked at its clusters yet")

// ErrTaken says that a cluster has a Module or a ManifestWork of this name that is not ours.
var ErrTaken = errors.New("one of this name exists that is not this hub's, or came by another transport: delete it, or rename the " +
	"ManagedClusterModule")

// Transport brings Modules to clusters and reports what becomes of them. It has no own state.
type Transport interface {
	// Name is one word for messages.
	Name() string
	// Watch calls changed, until ctx ends, with the name of a ManagedClusterModule whose Modules or
	// reports may have changed, or with "" for all of them.
	Watch(ctx context.Context, changed func(name string)) error
	// Targets are the transport's clusters. The error may wrap [ErrAbsent] or [ErrBeginning].
	Targets(ctx context.Context) ([]Target, error)
	// Parcels are what clusters have for a ManagedClusterModule, by cluster, also of former targets.
	Parcels(ctx context.Context, name string) (map[string]Parcel, error)
	// Send brings a Module to a cluster that does not have exactly this one. For a cluster that is not
	// reached it does nothing: that it is again is an event.
	Send(ctx context.Context, cluster string, m *v1beta1.Module) error
	// Recall deletes a Module from a cluster, which unloads it by its own rules. gone: it has.
	Recall(ctx context.Context, cluster string, m types.NamespacedName) (gone bool, err error)
}
