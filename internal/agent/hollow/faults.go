// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"strings"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// apply arranges one fault: "<what>" on all nodes or "<what>@<node>".
func (f *fleet) apply(fault string) error {
	what, where, one := strings.Cut(fault, "@")
	nodes := f.nodes
	if one {
		n := f.byName[where]
		if n == nil {
			return fmt.Errorf("--fault %s: no node %s", fault, where)
		}
		nodes = []*node{n}
	}
	for _, n := range nodes {
		if err := n.fault(what); err != nil {
			return fmt.Errorf("--fault %s: %w", fault, err)
		}
	}
	return nil
}

func (n *node) fault(what string) error {
	if what == "agent-off" {
		n.off = true
		return nil
	}
	call, errno, ok := strings.Cut(what, "-")
	calls := map[string]string{"load": "finit_module", "unload": "delete_module"}
	if !ok || calls[call] == "" || errno == "" {
		return fmt.Errorf("unknown fault %q", what)
	}
	n.kernel.Script(calls[call], "", fake.Fault{Errno: strings.ToUpper(errno)})
	return nil
}
