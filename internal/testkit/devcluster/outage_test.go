// SPDX-License-Identifier: Apache-2.0

package devcluster_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// An outage of a server keeps the data and the address.
func TestOutageKeepsData(t *testing.T) {
	c := start(t, devcluster.Options{})
	set := client(t, c, func(*rest.Config) {})
	createNode(t, set, "kept", nil)
	for _, component := range []string{devcluster.APIServer, devcluster.Etcd} {
		begin := time.Now()
		if err := c.StopComponent(t.Context(), component); err != nil {
			t.Fatal(err)
		}
		// Without etcd the API server would answer, late, with its own timeout.
		if component == devcluster.APIServer {
			if _, err := set.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
				t.Error("the stopped API server answers")
			}
		}
		if err := c.StartComponent(t.Context(), component); err != nil {
			t.Fatal(err)
		}
		t.Logf("outage of %s: %s", component, time.Since(begin))
	}
	if _, err := set.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after the outages: %v", err)
	}
	if err := c.StopComponent(t.Context(), devcluster.Kwok); err == nil {
		t.Error("stopped a component that was not started")
	}
}
