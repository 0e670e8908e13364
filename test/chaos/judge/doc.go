// SPDX-License-Identifier: Apache-2.0

// Package judge says whether kernels were treated as they were to be: from what the API server
// wrote down and from what the kernels wrote down, and from nothing that Drover keeps. It is pure:
// facts in, findings out.
package judge

import (
	"fmt"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// Node is all that is known of one node.
type Node struct {
	Name string
	// Orders in the order in which the API server took them.
	Orders []Order
	// Sights is what the API showed of the node, oldest first.
	Sights []Sight
	// Calls that its kernel got, oldest first.
	Calls []fake.Call
}

// Order is what a NodeModulesConfig asks of a node from a write on.
type Order struct {
	Revision int64
	// Received is when the API server got the write, Done when it had answered.
	Received, Done time.Time
	// Absent orders an unload.
	Absent bool
	// Want is what the kernel shall hold, as What gives it.
	Want string
	// Image of the order, for people and for telling upgrades apart.
	Image string
	// By is the user agent that wrote it.
	By string
}

// Sight is what the API shows of a node from a time on.
type Sight struct {
	From time.Time
	// Up is true for a node that is Ready and whose kernel module is reported live in its present
	// boot.
	Up bool
}

// Finding is something that must not be.
type Finding struct {
	Node string
	Time time.Time
	Text string
}

// String is for people.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s: %s", f.Time.UTC().Format("15:04:05.000"), f.Node, f.Text)
}
