// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestOneImageWithTwoContentsIsNamed, with the digests and nodes, and is no failure.
func TestOneImageWithTwoContentsIsNamed(t *testing.T) {
	s := newScene(t, 3)
	start(t, s.Env)
	bring := func(name, digest string) {
		t.Helper()
		status := holding(s.live("boot-1"), s.asked(t))
		status.Artifacts[0].Digest = digest
		s.report(t, name, status)
	}
	for i, name := range s.nodes {
		s.order(t, name)
		s.orders(t, name, s.asked(t), config())
		bring(name, []string{"sha256:aa", "sha256:bb", "sha256:aa"}[i])
	}
	s.awaitMessage(t, v1beta1.ConditionLoaded, "Live on 3 nodes; "+config().ContainerImage+" has different content on different nodes: "+
		"sha256:aa on "+
		s.nodes[0]+", "+s.nodes[2]+", sha256:bb on "+s.nodes[1])
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionTrue, v1beta1.ReasonMixedContent)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)

	bring(s.nodes[1], "sha256:aa")
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionTrue, v1beta1.ReasonLoaded)
}
