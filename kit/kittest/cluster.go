// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	// startTimeout bounds the start. The very first one on a machine compiles the control plane.
	startTimeout = 30 * time.Minute
	// pace is how often something is tried again of which no watch tells.
	pace = 100 * time.Millisecond
)

// Cluster is a running cluster. Its methods end the test when something is wrong with the cluster
// itself.
type Cluster struct {
	// Client is the administrator's, to play the cluster's users and everybody else. It knows the
	// kinds of AddToScheme and Drover's.
	Client client.WithWatch

	o         Options
	fleet     *fleet.Fleet
	scheme    *runtime.Scheme
	operators map[string]*Operator
}

// shared is the one cluster of a test binary. Tests have no other way to share what TestMain
// starts.
var shared struct {
	once    sync.Once
	options *Options
	cluster *Cluster
	err     error
}

// Start starts a cluster of the test's own, which ends with the test. Tests of one package do
// better to share one: see Main.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.logs())
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Main runs a package's tests, which share the cluster that Shared returns, and ends it afterwards.
// It is the body of TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(kittest.Main(m, kittest.Options{…})) }
func Main(m *testing.M, o Options) int {
	shared.options = &o
	code := m.Run()
	if shared.cluster == nil {
		return code
	}
	if code != 0 {
		fmt.Println(shared.cluster.logs())
	}
	if err := shared.cluster.stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "kittest:", err)
		return 1
	}
	return code
}

// Shared is the cluster of Main's options. The first test that asks for it starts it. Tests that
// share it use namespaces of their own.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	if shared.options == nil {
		t.Fatal("kittest.Shared needs func TestMain(m *testing.M) { os.Exit(kittest.Main(m, kittest.Options{…})) } in this package")
	}
	shared.once.Do(func() { shared.cluster, shared.err = start(*shared.options) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

func start(o Options) (_ *Cluster, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := &Cluster{o: o, operators: map[string]*Operator{}}
	c.fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: len(o.Nodes), Kernels: o.kernels(), Bare: o.WithoutDrover, Ooto: o.Ooto, HollowArgs: o.hollowArgs(),
	})
	if err != nil {
		return nil, fmt.Errorf("kittest: start a cluster: %w", err)
	}
	for _, step := range []func(context.Context) error{c.connect, c.equip, c.install, c.startOperators} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("kittest: %w", err), c.stop())
		}
	}
	return c, nil
}

func (c *Cluster) stop() error {
	var all error
	for _, operator := range c.operators {
		all = errors.Join(all, operator.stop())
	}
	return errors.Join(all, c.fleet.Stop())
}

func (c *Cluster) connect(context.Context) (err error) {
	c.scheme = c.fleet.Admin.Scheme()
	for _, add := range c.o.AddToScheme {
		if err := add(c.scheme); err != nil {
			return fmt.Errorf("add to the scheme: %w", err)
		}
	}
	c.Client, err = client.NewWithWatch(c.fleet.AdminConfig, client.Options{Scheme: c.scheme})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// Config is the administrator's connection.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.fleet.AdminConfig) }

// Scheme knows the kinds of AddToScheme, Drover's and the built-in ones.
func (c *Cluster) Scheme() *runtime.Scheme { return c.scheme }

// Dir is a folder that is there as long as the cluster. It has the logs of all that runs.
func (c *Cluster) Dir() string { return c.fleet.Dir() }

// Namespace makes a namespace of the test's own and returns its name. It is deleted at the end of
// the test with what is in it, Modules first, and nobody waits until all of that is gone: what must
// be gone for other tests, delete with Delete.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := c.clear(context.WithoutCancel(t.Context()), namespace); err != nil && !t.Failed() {
			t.Errorf("delete namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}

// clear deletes a namespace. Drover refuses that as long as there are Modules in it: each is to be
// unloaded first.
func (c *Cluster) clear(ctx context.Context, namespace *corev1.Namespace) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pace, c.o.Patience, true, func(ctx context.Context) (bool, error) {
		if last = c.Client.Delete(ctx, namespace); last == nil {
			return true, nil
		}
		err := c.Client.DeleteAllOf(ctx, &v1beta1.Module{}, client.InNamespace(namespace.Name))
		if meta.IsNoMatchError(err) {
			return false, last
		}
		return false, err
	})
	if err != nil {
		return errors.Join(last, err)
	}
	return nil
}

// Create makes objects under strict validation: a field that their kind does not have is an error.
func (c *Cluster) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Client.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Fatalf("create %T %s: %v", o, client.ObjectKeyFromObject(o), err)
		}
	}
}

// Delete deletes objects, if they are there, and returns when they are gone: finalizers have done
// their work.
func (c *Cluster) Delete(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), o,
			client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
			t.Fatalf("delete %T %s: %v", o, client.ObjectKeyFromObject(o), err)
		}
		AwaitGone(t, c, o)
	}
}

// Apply applies files or folders under strict validation, as `kubectl apply --server-side` does, to
// a namespace unless they name one.
func (c *Cluster) Apply(t testing.TB, namespace string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := c.apply(t.Context(), path, "--validate=strict", "--namespace="+namespace); err != nil {
			t.Fatal(err)
		}
	}
}

// install applies the manifests, and returns when the CRDs among them are served.
func (c *Cluster) install(ctx context.Context) error {
	for _, path := range c.o.Manifests {
		if err := c.apply(ctx, path); err != nil {
			return err
		}
	}
	if len(c.o.Manifests) == 0 {
		return nil
	}
	_, err := c.fleet.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	return err
}

func (c *Cluster) apply(ctx context.Context, path string, args ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find %s: %w", path, err)
	}
	how := "-f"
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		how = "-k"
	}
	_, err = c.fleet.Kubectl(ctx, append([]string{"apply", "--server-side", "--force-conflicts", how, path}, args...)...)
	return err
}
