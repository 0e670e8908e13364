// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// drifted says that what is wanted went out of the kernel. It is the same at each repair, so that it is written once while they go on.
func (l *loaded) drifted() *report {
	return &report{
		State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonDrifted,
		Message: fmt.Sprintf("Module %s goes out of the kernel although it is wanted; it is loaded again. Find out what unloads it.", l.Main),
	}
}

// recurring is drifted while it goes on: from the second repair, until the module has stayed for retryForget. nil: it does not. What is live
// again is reported all the same, as a repair takes so little time that only a lucky look would find the module gone.
func (l *loaded) recurring(now time.Time) *report {
	if l.Repairs < 2 || l.LastRepair == nil || now.Sub(l.LastRepair.Time) >= retryForget {
		return nil
	}
	return l.drifted()
}
