// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestBurstCostsAHandfulOfStatusWrites(t *testing.T) {
	const nodes = 30
	s := newScene(t, nodes)
	start(t, s.Env)
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoading)
	for _, name := range s.nodes {
		s.order(t, name)
	}
	mark, began := s.Mark(t), time.Now()
	for _, name := range s.nodes {
		s.report(t, name, s.live("boot-1"))
	}
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	writes := s.Writes(t, mark)
	if got := writes[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "nodes"}]; got != nodes {
		t.Errorf("%d label patches for %d nodes", got, nodes)
	}
	got, most := writes[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "modules/status"}], int(time.Since(began).Seconds())+2
	if got > most {
		t.Errorf("%d status writes in %s, want at most %d", got, time.Since(began), most)
	}
}

// TestLittleProgressIsNotWritten: on many nodes, what only counts them waits for more of it, and a
// condition's reason does not.
func TestLittleProgressIsNotWritten(t *testing.T) {
	s, board := newScene(t, 30), metrics.NewBoard()
	for _, name := range s.nodes {
		s.order(t, name)
	}
	now := time.Now()
	startOptions(t, s.Env, node.Options{Metrics: board, Now: func() time.Time { return now }}) // no time passes
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoading)
	mark := s.Mark(t)
	available := func(n int32) {
		eventually(t, fmt.Sprintf("written as available: %d", n), func(ctx context.Context) (bool, error) {
			err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), s.module)
			return s.module.Status.ModuleLoader.AvailableNumber == n, err
		})
	}

	s.report(t, s.nodes[0], s.live("boot-1"))
	s.awaitReady(t, board, 1)
	s.report(t, s.nodes[1], s.live("boot-1"))
	available(2)
	writes := s.Writes(t, mark)[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "modules/status"}]
	if writes != 1 {
		t.Errorf("%d writes for a fifteenth of the nodes, in two passes", writes)
	}

	s.report(t, s.nodes[2], s.failed(v1beta1.ReasonNoSuchDevice, "no device"))
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonNoSuchDevice)
}

// awaitReady waits until a pass has counted so many nodes as ready.
func (s *scene) awaitReady(t *testing.T, board *metrics.Board, n int) {
	t.Helper()
	want := fmt.Sprintf(`drover_module_nodes{name="nic",namespace=%q,state="ready"} %d`, s.namespace, n)
	eventually(t, want, func(context.Context) (bool, error) {
		text, err := testutil.CollectAndFormat(board, expfmt.TypeTextPlain, "drover_module_nodes")
		return bytes.Contains(text, []byte(want+"\n")), err
	})
}
