// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/shared/kube"
)

func runtimeScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	utilruntime.Must(v1beta2.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// install applies what a cluster admin applies, but for the Deployment and the DaemonSet, which run
// here as processes.
func (f *Fleet) install(ctx context.Context) error {
	if err := f.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}); err != nil {
		return err
	}
	if err := f.apply(ctx); err != nil {
		return err
	}
	files := []string{"config/operator/images.yaml"}
	if f.o.Ooto { // a component, which cannot be applied alone
		for _, name := range []string{"ooto.sigs.k8s.io_modules", "operator_role", "roles", "policy"} {
			files = append(files, "config/ooto/"+name+".yaml")
		}
	}
	if f.o.builds() {
		files = append(files, "config/build/operator_role.yaml", "config/build/binding.yaml")
	}
	if f.o.Spoke {
		for _, name := range []string{"operator_role", "claims_role", "rbac", "access"} {
			files = append(files, "config/spoke/"+name+".yaml")
		}
	}
	if _, err := f.Kubectl(ctx, "apply", "--server-side", "-f", strings.Join(files, ",")); err != nil {
		return err
	}
	if _, err := f.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd/modules.kmm.sigs.x-k8s.io",
		"crd/nodemodulesconfigs.kmm.sigs.x-k8s.io"); err != nil {
		return err
	}
	return f.installHollow(ctx)
}

// apply applies definitions, roles and policies.
func (f *Fleet) apply(ctx context.Context) error {
	dirs := []string{"config/crd", "config/rbac"}
	if !f.o.WithoutPolicies {
		dirs = append(dirs, "config/policies")
	}
	for _, dir := range dirs {
		if _, err := f.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(f.installed.Root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// startNodes starts hollow nodes where nobody has installed Drover, if there are to be any.
func (f *Fleet) startNodes(ctx context.Context) error {
	if err := f.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}); err != nil {
		return err
	}
	if err := f.installHollow(ctx); err != nil {
		return err
	}
	if f.o.Nodes == 0 {
		return nil
	}
	f.o.Faults = append(f.o.Faults, "agent-off")
	return f.StartHollow(ctx)
}

// Install installs Drover where Later left it out, as an administrator does, and starts the
// operator and the nodes' agents.
func (f *Fleet) Install(ctx context.Context) error {
	if err := f.install(ctx); err != nil {
		return err
	}
	for i := range f.o.Nodes {
		if err := f.Debug(ctx, fmt.Sprintf("/agent?node=hollow-%d", i)); err != nil {
			return err
		}
	}
	return f.StartOperator(ctx)
}

// installHollow gives the hollow nodes an identity of their own: what a cluster's kubelets may do
// and how urgent it is, and node-bound agent tokens.
func (f *Fleet) installHollow(ctx context.Context) error {
	const name = "drover-hollow"
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "namespaces"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "patch", "update"}},
	}
	for _, flow := range hollowFlows(name) {
		if err := f.create(ctx, flow); err != nil {
			return err
		}
	}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: name}},
		},
	} {
		if err := f.create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// CreateNamespace makes a namespace and waits for its default ServiceAccount: before it is there,
// the API server refuses pods.
func (f *Fleet) CreateNamespace(ctx context.Context, namespace *corev1.Namespace) error {
	if err := f.Admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	account := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := f.Admin.Get(ctx, account, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for ServiceAccount %s: %w", account, err)
	}
	return nil
}

func (f *Fleet) create(ctx context.Context, o client.Object) error {
	if err := f.Admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// ConfigFor returns a connection under the identity of a ServiceAccount of Drover's namespace.
func (f *Fleet) ConfigFor(ctx context.Context, serviceAccount string) (*rest.Config, error) {
	return f.AccountConfig(ctx, Namespace, serviceAccount)
}

// AccountConfig returns a connection under the identity of any ServiceAccount.
func (f *Fleet) AccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	seconds := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if err := f.Admin.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("get a token of ServiceAccount %s: %w", name, err)
	}
	config := rest.AnonymousClientConfig(f.AdminConfig)
	config.BearerToken, config.QPS = request.Status.Token, -1
	return config, nil
}

func (f *Fleet) kubeconfigFor(ctx context.Context, serviceAccount string) (string, error) {
	config, err := f.ConfigFor(ctx, serviceAccount)
	if err != nil {
		return "", err
	}
	path := filepath.Join(f.dir, serviceAccount+".kubeconfig")
	return path, WriteKubeconfig(path, config)
}

// WriteKubeconfig writes a connection that has a token to a file.
func WriteKubeconfig(path string, config *rest.Config) error {
	content, err := Kubeconfig(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// Kubeconfig is a connection that has a token, with all it needs inside.
func Kubeconfig(config *rest.Config) (content []byte, err error) {
	kubeconfig := clientcmdapi.NewConfig()
	ca := config.CAData
	if len(ca) == 0 {
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return nil, fmt.Errorf("read the cluster's CA: %w", err)
		}
	}
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: ca}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	if content, err = clientcmd.Write(*kubeconfig); err != nil {
		return nil, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return content, nil
}

// ServesDRA reports whether the API server serves what DRA drivers need.
func (f *Fleet) ServesDRA() (bool, error) { return kube.ServesDRA(f.Admin.RESTMapper()) }
