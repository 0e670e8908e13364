// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestMetricsAskWhoReadsThem: as the flags have it by default, metrics are for those whom the API
// server lets get /metrics, under the roles of operator and hub.
func TestMetricsAskWhoReadsThem(t *testing.T) {
	e := env.Get(t)
	namespace := e.Namespace(t)
	for _, name := range []string{"prometheus", "stranger"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := e.Admin(t).Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drover-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"}},
	}
	if err := e.Admin(t).Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{
		"no token": "", "not a token": "x", "stranger": e.Token(t, namespace, "stranger"), "prometheus": e.Token(t, namespace, "prometheus"),
	}
	then := map[string]int{ // controller-runtime answers 500 to what is no token
		"no token": http.StatusUnauthorized, "not a token": http.StatusInternalServerError, "stranger": http.StatusForbidden,
		"prometheus": http.StatusOK,
	}
	address := startSecure(t, e)
	for who, token := range tokens {
		code, text := scrapeAs(t, address, token)
		if code != then[who] || (code == http.StatusOK) != strings.Contains(text, "go_goroutines") {
			t.Errorf("%s gets %d, want %d:\n%.200s", who, code, then[who], text)
		}
	}
}

// startSecure runs an operator without controllers, with the defaults of its flags but for its
// addresses.
func startSecure(t *testing.T, e *env.Env) (address string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	options, err := operator.ParseFlags([]string{
		"--agent-image=" + env.AgentImage, "--namespace=" + env.OperatorNamespace, "--metrics-bind-address=" + address,
		"--health-probe-bind-address=0", "--leader-elect=false",
	})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// It makes its certificate first.
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			err = connection.Close()
		}
		return err == nil, nil // until it serves
	})
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func scrapeAs(t *testing.T, address, token string) (code int, text string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the certificate is the operator's own
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}
