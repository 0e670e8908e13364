// SPDX-License-Identifier: Apache-2.0

package devcluster_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// The API server reaches a node's kubelet, as for logs, under the node's name
// on loopback. Where it cannot be had, the start says so.
func TestAPIServerReachesAliasedNode(t *testing.T) {
	built(t)
	o := devcluster.Options{NodeHostAliases: []string{"vm-1.invalid"}}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		if _, err := devcluster.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "need Linux and root") {
			t.Errorf("no clear refusal: %v", err)
		}
		return
	}
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "kubelet asked for %s", r.URL.Path)
	}))
	t.Cleanup(kubelet.Close)
	address, ok := kubelet.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("odd address %v", kubelet.Listener.Addr())
	}

	set := client(t, start(t, o), func(*rest.Config) {})
	node := createNode(t, set, "vm-1.invalid", nil)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, // goes nowhere
		{Type: corev1.NodeHostName, Address: "vm-1.invalid"},
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if _, err := set.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, set, "p", "vm-1.invalid", nil)
	log, err := set.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Container: "main"}).DoRaw(t.Context())
	if want := "kubelet asked for /containerLogs/default/p/main"; err != nil || string(log) != want {
		t.Errorf("log: %q, %v, want %q", log, err, want)
	}
}
