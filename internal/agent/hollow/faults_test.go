// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestFaults(t *testing.T) {
	e := env.Get(t)
	for _, fault := range []string{"nonsense", "load-", "agent-off@nobody"} {
		err := hollow.Run(t.Context(), e.AdminConfig(), hollow.Options{Nodes: 1, Kernels: []string{kernelA}, Faults: []string{fault}}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("fault %q: %v", fault, err)
		}
	}
	r := start(t, hollow.Options{Nodes: 2, Kernels: []string{kernelA}, Faults: []string{"load-enodev"}})
	r.deliver(r.node(0), kernelA, image, delivery.ModeImageVolume)
	r.eventually("the kernel refuses", func(ctx context.Context) (string, error) {
		t, err := r.truth(ctx, r.node(0))
		if err != nil || t.Refused == 0 || len(t.Loaded) > 0 {
			return fmt.Sprintf("kernel saw %+v", t), err
		}
		return "", nil
	})
	r.do("/mend?node=" + r.node(0))
	r.live(r.node(0))
}
