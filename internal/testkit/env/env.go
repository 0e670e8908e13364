// SPDX-License-Identifier: Apache-2.0

// Package env gives tests a real API server as Drover finds it in a cluster: this repository's
// CRDs, admission policies and roles are installed, every request is in an audit log, and a client
// has the identity and the rights of the part that it plays.
//
// There is no controller manager: nothing collects garbage, nothing makes pods from DaemonSets, and
// a deleted namespace stays Terminating. Use [Env.Namespace] for a fresh one per test.
package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	deviceconfigv1alpha1 "github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/drover/v1alpha1"
	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	kmmv1beta2 "github.com/drover-project/drover/api/kmm/v1beta2"
	ootov1alpha1 "github.com/drover-project/drover/api/ooto/v1alpha1"
	ptemplatev1alpha1 "github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
)

const (
	// OperatorNamespace is where the operator and the agents run.
	OperatorNamespace = "drover-system"
	// Operator is the operator's ServiceAccount.
	Operator = "drover-operator"
	// Agent is the node agents' ServiceAccount.
	Agent = "drover-agent"
	// AgentImage is the agent's image as the admission policy expects it of a carrier.
	AgentImage = "registry.invalid/drover/drover-agent:dev"
)

// startTimeout bounds the start of each component. Two to four seconds are usual; a machine that is
// busy with other builds needs more.
const startTimeout = 3 * time.Minute

// buildTimeout bounds the very first build of the control plane's programs on a machine.
const buildTimeout = 30 * time.Minute

// Env is a running API server. It is shared by all tests of one test binary, which therefore use
// names of their own.
type Env struct {
	test   envtest.Environment
	admin  *rest.Config
	scheme *runtime.Scheme
	dir    string
	log    *auditLog

	users sync.Mutex // envtest's user registry is not safe for concurrent use
}

// shared is the one Env of this test binary. Tests have no other way to share what TestMain starts.
var shared struct {
	once sync.Once
	main bool
	args map[string]string
	env  *Env
	err  error
}

// Main runs the tests of a package and stops the API server afterwards. It is the body of TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
func Main(m *testing.M) int { return MainWith(m, nil) }

// MainWith is Main with more arguments of the API server, by their names without dashes.
func MainWith(m *testing.M, args map[string]string) int {
	shared.main, shared.args = true, args
	log.SetLogger(klog.Background()) // controller-runtime wants to be told; tests of controllers pass their own logger
	code := m.Run()
	if shared.env == nil {
		return code
	}
	if err := shared.env.stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return 1
	}
	return code
}

// Get returns the shared API server and starts it for the first test that asks.
func Get(t testing.TB) *Env {
	t.Helper()
	if !shared.main {
		t.Fatal("env.Get needs func TestMain(m *testing.M) { os.Exit(env.Main(m)) } in this package")
	}
	shared.once.Do(func() { shared.env, shared.err = start() })
	if shared.err != nil {
		t.Fatalf("start the API server: %v", shared.err)
	}
	return shared.env
}

// NewScheme knows the built-in kinds and Drover's.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kmmv1beta1.AddToScheme(scheme))
	utilruntime.Must(kmmv1beta2.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(ootov1alpha1.AddToScheme(scheme))
	utilruntime.Must(deviceconfigv1alpha1.AddToScheme(scheme))
	utilruntime.Must(ptemplatev1alpha1.AddToScheme(scheme))
	return scheme
}

func start() (_ *Env, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	assets, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "drover-env-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the API server: %w", err)
	}
	e := &Env{dir: dir, log: newAuditLog(filepath.Join(dir, "audit.log")), scheme: NewScheme()}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	e.test = envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: startTimeout},
		ControlPlaneStartTimeout: startTimeout,
		Scheme:                   e.scheme,
	}
	e.test.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "Node,RBAC").
		Set("enable-admission-plugins", "NodeRestriction").
		Set("audit-policy-file", policy).
		Set("audit-log-path", e.log.path).
		Set("audit-log-maxsize", "1000000"). // megabytes: never rotated, writes are counted over the whole file
		Set("max-requests-inflight", "4000").
		Set("max-mutating-requests-inflight", "2000")
	for name, value := range shared.args {
		e.test.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	if e.admin, err = e.test.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start envtest: %w", err), e.stop())
	}
	e.admin.UserAgent = "test-admin"
	if err := e.install(ctx, root); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *Env) stop() error {
	err := e.test.Stop()
	if removeErr := os.RemoveAll(e.dir); removeErr != nil {
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		return fmt.Errorf("stop envtest: %w", err)
	}
	return nil
}

// Scheme knows the built-in kinds and Drover's.
func (e *Env) Scheme() *runtime.Scheme { return e.scheme }

// Client is a client with the given identity: e.Client(t, e.Config(t, env.Operator)).
func (e *Env) Client(t testing.TB, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: e.scheme})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return c
}

// Admin is a client of the cluster's administrator (system:masters).
func (e *Env) Admin(t testing.TB) client.WithWatch {
	t.Helper()
	return e.Client(t, e.AdminConfig())
}

// binaries returns the directory that holds kube-apiserver and etcd: KUBEBUILDER_ASSETS, or this
// repository's own control plane, which the first use on a machine compiles.
func binaries(ctx context.Context) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	dir, err := devcluster.Assets(ctx)
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return dir, nil
}

// repositoryRoot is the nearest directory above the working directory that holds config/crd: tests
// run in the directory of their package.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "config", "crd", "bases")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository: no directory above holds config/crd/bases")
		}
		dir = parent
	}
}
