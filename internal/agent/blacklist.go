// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// putBlacklists keeps the host from loading what orders replace, where they ask for it. An order for which that fails is carried out all the
// same, and says so.
func (p *pass) putBlacklists() {
	p.notListed = map[key]*report{}
	for k, o := range p.orders {
		if !asksForBlacklist(o) || o.Paused {
			continue
		}
		if p.o.Blacklist == nil {
			p.notListed[k] = &report{
				State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonUnsupported,
				Message: "blacklistInTree needs the host's /etc/modprobe.d, which this node's agent does not have: deploy the component config/blacklist, " +
					"or set blacklistInTree to false. The order is carried out without it.",
			}
			continue
		}
		if err := p.o.Blacklist.Put(k.String(), inTree(o.Config)); err != nil {
			p.notListed[k] = &report{
				State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed,
				Message: fmt.Sprintf("The modules that the order replaces are not blacklisted: %v. The order is carried out without it.", err),
			}
		}
	}
}

// tidyBlacklists removes the files of Modules that have left, or ask for none any more. What is loaded keeps its own until it goes, and so does what
// is paused.
func (p *pass) tidyBlacklists() error {
	if p.o.Blacklist == nil {
		return nil
	}
	var keep []string
	for _, k := range p.keys() {
		o := p.orders[k]
		loaded := p.journal.Loaded[k] != nil
		if o != nil && (asksForBlacklist(o) || o.Paused) || loaded && (o == nil || o.State == v1beta1.NodeModuleAbsent) {
			keep = append(keep, k.String())
		}
	}
	if err := p.o.Blacklist.Retain(keep); err != nil {
		return fmt.Errorf("tidy: %w", err)
	}
	return nil
}

// asksForBlacklist tells whether an order asks for its in-tree modules to be blacklisted.
func asksForBlacklist(o *v1beta1.NodeModuleSpec) bool {
	return o.BlacklistInTree && o.State != v1beta1.NodeModuleAbsent && len(inTree(o.Config)) > 0
}
