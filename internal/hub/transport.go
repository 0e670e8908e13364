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
	// Claims are what the cluster says of itself, by name: [KernelsClaim], [PlatformsClaim].
	Claims map[string]string
	// Unreachable says why nothing can be sent to it now, or heard of it; empty: it can.
	Unreachable string
	// Unknown: this process has not heard of it yet, neither what it runs nor what it has.
	Unknown bool
}

// Parcel is what a cluster was sent last for one ManagedClusterModule, and what became of it.
type Parcel struct {
	// Module is what was sent, with its annotations.
	Module *v1beta1.Module
	Report Report
	// Going: it is being deleted there. Nothing: the cluster has none, for it did not take what it was sent.
	Going, Nothing bool
}

// ErrAbsent says that what a transport needs is not installed on the hub. It may come.
var ErrAbsent = errors.New("is not installed")

// ErrBeginning says that a transport has just begun to look. What it finds is an event.
var ErrBeginning = errors.New("has not looked at its clusters yet")

// ErrTaken says that the name is somebody else's on a cluster.
var ErrTaken = errors.New("there is a Module of this name that is not this hub's, or came by another way: delete it, or give the ManagedClusterModule another name")

// Transport brings Modules to clusters, and back what became of them. It keeps nothing itself: what was sent stands where it was sent.
type Transport interface {
	// Name is one word for messages.
	Name() string
	// Watch calls changed with the name of a ManagedClusterModule when what clusters have for it, or say of it, may have changed, and with "" when all of
	// them may be concerned, until ctx ends.
	Watch(ctx context.Context, changed func(name string)) error
	// Targets are the clusters that it reaches. The error wraps [ErrAbsent] where there is nothing to ask, and [ErrBeginning] where it is too early to.
	Targets(ctx context.Context) ([]Target, error)
	// Parcels are what clusters have for a ManagedClusterModule, by their names. A cluster that is no target any more may be among them.
	Parcels(ctx context.Context, name string) (map[string]Parcel, error)
	// Send brings a Module to a cluster, if that has not just this already. One that is not reached is an event when it is.
	Send(ctx context.Context, cluster string, m *v1beta1.Module) error
	// Recall takes a Module back from a cluster, which unloads it by its own rules. Gone: nothing is left of it.
	Recall(ctx context.Context, cluster string, m types.NamespacedName) (gone bool, err error)
}
