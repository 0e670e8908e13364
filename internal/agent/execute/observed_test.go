// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/host"
)

// TestWhatOnlyRootMayReadIsNotTold: the status of a node is read by more people than root there.
func TestWhatOnlyRootMayReadIsNotTold(t *testing.T) {
	given := host.Module{Parameters: map[string]string{"size": "31", "key": "secret"}, Private: []string{"key"}}
	if diff := cmp.Diff(map[string]string{"size": "31"}, observed(given).Parameters); diff != "" {
		t.Error(diff)
	}
	if given.Parameters["key"] != "secret" {
		t.Error("what is compared with the order has changed")
	}
}
