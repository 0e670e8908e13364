// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestACacheHasCaughtUp: an old cache is not what a cluster says, after an outage for example.
func TestACacheHasCaughtUp(t *testing.T) {
	for name, tc := range map[string]struct {
		have, now, at string // UID and version
		want          bool
	}{
		"nothing":                  {at: "9", want: true},
		"the same":                 {have: "a5", now: "a5", at: "9", want: true},
		"newer than the list":      {have: "a7", now: "a5", at: "6", want: true},
		"older":                    {have: "a5", now: "a7", at: "9"},
		"not there yet":            {now: "a7", at: "9"},
		"gone by now":              {have: "a5", at: "9"},
		"newer than the whole":     {have: "a5", at: "4", want: true},
		"another one of that name": {have: "a5", now: "b7", at: "9"},
		"versions unlike numbers":  {have: "ax", now: "ay", at: "z", want: true},
	} {
		now := &metav1.PartialObjectMetadataList{}
		now.ResourceVersion = tc.at
		var have []v1beta1.Module
		if tc.now != "" {
			now.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{UID: types.UID(tc.now[:1]), ResourceVersion: tc.now[1:]}}}
		}
		if tc.have != "" {
			have = []v1beta1.Module{{ObjectMeta: metav1.ObjectMeta{UID: types.UID(tc.have[:1]), ResourceVersion: tc.have[1:]}}}
		}
		if got := caughtUp(have, now); got != tc.want {
			t.Errorf("%s: it has caught up: %v", name, got)
		}
	}
}

// TestAccessThatIsTakenAwayIsTold: the cache of a cluster whose Modules may no longer be read stays
// as it was. It must not pass for what the cluster says.
func TestAccessThatIsTakenAwayIsTold(t *testing.T) {
	e := env.Get(t)
	e.Install(t, "spoke")
	admin, namespace := e.Admin(t), e.Namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hub"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drover-hub-access"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	}
	maps := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "drover-hub-access"}, Subjects: binding.Subjects,
	}
	for _, o := range []client.Object{account, binding, maps} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), maps) }) // the namespace it is in stays
	config := e.AdminConfig()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: e.Token(t, namespace, account.Name)}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(kubeconfig, env.OperatorNamespace, "sender")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- c.run(ctx, func(string) {}) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if err := c.answers(t.Context(), startTimeout); err != nil {
		t.Fatalf("with access, it does not answer: %v", err)
	}

	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}

	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.answers(ctx, startTimeout)
		return err != nil && strings.Contains(err.Error(), "may list Modules"), nil
	}); err != nil {
		t.Errorf("without access, it answers: %v", err)
	}
}
