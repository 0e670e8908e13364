// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
)

// tokenSeconds is how long a token lasts; no test binary runs that long.
const tokenSeconds = 6 * 3600

// AdminConfig is for the cluster's administrator (system:masters), to play the user and the rest of
// the cluster.
func (e *Env) AdminConfig() *rest.Config { return rest.CopyConfig(e.admin) }

// Config is for a ServiceAccount of the operator's namespace, with a real token and so exactly the
// rights that config/rbac gives it. Its user agent is the account's name with "/test".
func (e *Env) Config(t testing.TB, serviceAccount string) *rest.Config {
	t.Helper()
	return e.token(t, OperatorNamespace, serviceAccount, nil)
}

// AgentConfig is for the agent of one node: the token is bound to the Node object, which must
// exist.
func (e *Env) AgentConfig(t testing.TB, node string) *rest.Config {
	t.Helper()
	object := &corev1.Node{}
	if err := e.Admin(t).Get(t.Context(), client.ObjectKey{Name: node}, object); err != nil {
		t.Fatalf("get the agent's node: %v", err)
	}
	return e.token(t, OperatorNamespace, Agent, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID,
	})
}

func (e *Env) token(t testing.TB, namespace, account string, bound *authenticationv1.BoundObjectReference) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](tokenSeconds), BoundObjectRef: bound,
	}}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := e.Admin(t).SubResource("token").Create(t.Context(), object, request); err != nil {
		t.Fatalf("request a token for %s: %v", account, err)
	}
	config := rest.AnonymousClientConfig(e.admin)
	config.BearerToken = request.Status.Token
	config.UserAgent = account + "/test"
	config.QPS, config.Burst = e.admin.QPS, e.admin.Burst
	return config
}

// Token is one of any ServiceAccount, which must exist.
func (e *Env) Token(t testing.TB, namespace, serviceAccount string) string {
	t.Helper()
	return e.token(t, namespace, serviceAccount, nil).BearerToken
}

// UserConfig is for a person with a client certificate, who has the rights that RoleBindings give
// to name or groups.
func (e *Env) UserConfig(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	e.users.Lock()
	defer e.users.Unlock()
	user, err := e.test.AddUser(envtest.User{Name: name, Groups: groups}, rest.AnonymousClientConfig(e.admin))
	if err != nil {
		t.Fatalf("add user %s: %v", name, err)
	}
	config := user.Config()
	config.UserAgent = "test-user"
	return config
}

// KubeletConfig is for the kubelet of a node, with the rights that the Node authorizer gives it and
// NodeRestriction leaves it. The Node need not exist.
func (e *Env) KubeletConfig(t testing.TB, node string) *rest.Config {
	t.Helper()
	return e.UserConfig(t, "system:node:"+node, "system:nodes")
}

// ModuleNamespace creates a namespace with a Module that the admission policies know, as they must
// for the operator to make anything there.
func (e *Env) ModuleNamespace(t testing.TB) string {
	t.Helper()
	namespace := e.Namespace(t)
	module := &kmmv1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "resident"},
		Spec: kmmv1beta1.ModuleSpec{Selector: map[string]string{"drover.dev/no-node": ""}}}
	if err := e.Admin(t).Create(t.Context(), module); err != nil {
		t.Fatalf("create a Module: %v", err)
	}
	if err := e.awaitModule(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// Namespace creates a namespace with a unique name and returns the name.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Admin(t).Create(t.Context(), namespace); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return namespace.Name
}
