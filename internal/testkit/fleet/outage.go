// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"time"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// Outage ends the API server and starts it again a while later. It returns how long it was away.
func (f *Fleet) Outage(ctx context.Context, away time.Duration) (time.Duration, error) {
	begin := time.Now()
	if err := f.Cluster.StopComponent(ctx, devcluster.APIServer); err != nil {
		return 0, err
	}
	select { // time that passes is the outage; nothing is waited for
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(away):
	}
	err := f.Cluster.StartComponent(ctx, devcluster.APIServer)
	return time.Since(begin), err
}
