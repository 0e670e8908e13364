// SPDX-License-Identifier: Apache-2.0

package direct_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	patience = time.Minute
	// self is the hub of the tests.
	self = "hub-1"
)

// world is a hub and a cluster, which are one: each side has its own identity and its own rights.
type world struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	transport *direct.Transport
	told      chan string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "hub")
	e.Install(t, "spoke")
	w := &world{T: t, env: e, admin: e.Admin(t), told: make(chan string, 1000)}
	config := e.Config(t, "drover-hub")
	secrets, err := cache.New(config, cache.Options{Scheme: e.Scheme(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{env.OperatorNamespace: {}}},
	}})
	w.must(err)
	c, err := client.New(config, client.Options{Scheme: e.Scheme(), Cache: &client.CacheOptions{Reader: secrets}})
	w.must(err)
	w.transport = direct.New(c, secrets, env.OperatorNamespace, self)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- secrets.Start(ctx) }()
	go func() { ended <- w.transport.Watch(ctx, func(name string) { w.told <- name }) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func(context.Context) error) {
	w.Helper()
	last := errors.New("was not asked")
	if err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		return last == nil, nil
	}); err != nil {
		w.Fatalf("%s, within %s: %v", what, patience, last)
	}
}

// kubeconfig of an identity.
func (w *world) kubeconfig(config *rest.Config) []byte {
	w.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	w.must(err)
	return content
}

// cluster is the Secret of one.
func (w *world) cluster(name string, kubeconfig []byte) *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: name,
			Labels: map[string]string{direct.ClusterLabel: "true", "region": "north"}},
		Data: map[string][]byte{direct.KubeconfigKey: kubeconfig},
	}
	w.must(w.admin.Create(w.Context(), s))
	w.Cleanup(func() { w.must(client.IgnoreNotFound(w.admin.Delete(context.Background(), s))) })
	return s
}

// target is what is known of a cluster; nil: nothing.
func (w *world) target(ctx context.Context, name string) (*hub.Target, error) {
	targets, err := w.transport.Targets(ctx)
	for i := range targets {
		if targets[i].Name == name {
			return &targets[i], err
		}
	}
	return nil, err
}

// TestAClusterIsReached by a user who may no more than config/spoke lets a hub do: it says what it
// runs, gets a Module once, reports of it and loses it.
func TestAClusterIsReached(t *testing.T) {
	w := newWorld(t)
	platforms := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: direct.Platforms},
		Data:       map[string]string{hub.KernelsClaim: "6.1.0-56-amd64"},
	}
	w.must(w.admin.Create(t.Context(), platforms))
	t.Cleanup(func() { w.must(w.admin.Delete(context.Background(), platforms)) })
	w.cluster("metal", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.eventually("the cluster says what it runs", func(ctx context.Context) error {
		target, err := w.target(ctx, "metal")
		if err != nil || target == nil || target.Unreachable != "" || target.Labels["region"] != "north" ||
			target.Claims[hub.KernelsClaim] != "6.1.0-56-amd64" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		return nil
	})

	m := sent(w.env.Namespace(t), "nic")
	w.must(w.transport.Send(t.Context(), "metal", m))
	have := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), have))
	w.eventually("the hub sees what it sent", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "nic")
		if r := parcels["metal"].Report; err != nil || !r.Applied || r.Revision != "r1" || r.Ready == metav1.ConditionTrue {
			return fmt.Errorf("%+v: %w", r, err)
		}
		if diff := cmp.Diff(m.Spec.ModuleLoader.Container.KernelMappings,
			parcels["metal"].Module.Spec.ModuleLoader.Container.KernelMappings); diff != "" {
			return fmt.Errorf("its mappings are others:\n%s", diff)
		}
		return nil
	})
	w.must(w.transport.Send(t.Context(), "metal", m))
	before := have.ResourceVersion
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), have))
	if have.ResourceVersion != before {
		t.Error("what a cluster has was sent once more")
	}

	have.Status.ObservedGeneration = have.Generation
	meta.SetStatusCondition(&have.Status.Conditions,
		metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady})
	w.must(w.admin.Status().Update(t.Context(), have))
	w.eventually("the hub hears that it is Ready", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "nic")
		if r := parcels["metal"].Report; err != nil || !r.ReadyWith("r1") {
			return fmt.Errorf("%+v: %w", r, err)
		}
		return nil
	})
	w.eventually("the hub is told of the ManagedClusterModule", func(context.Context) error {
		select {
		case name := <-w.told:
			if name == "nic" {
				return nil
			}
			return fmt.Errorf("it was told of %q", name)
		default:
			return errors.New("it was told of none")
		}
	})

	w.eventually("the Module is gone", func(ctx context.Context) error {
		gone, err := w.transport.Recall(ctx, "metal", types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
		if err == nil && !gone {
			err = errors.New("it is there")
		}
		return err
	})
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), have); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the Module is still there: %v", err)
	}
}

// TestWhatAClusterDoesNotTakeIsTold: a Module of somebody else's stays as it is, and a namespace
// that is not there is named.
func TestWhatAClusterDoesNotTakeIsTold(t *testing.T) {
	w := newWorld(t)
	w.cluster("strict", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("strict")
	module := func(namespace string) *v1beta1.Module { return sent(namespace, "card") }
	theirs := module(w.env.Namespace(t))
	theirs.Labels = nil
	w.must(w.admin.Create(t.Context(), theirs))
	for name, tc := range map[string]struct{ namespace, want string }{
		"somebody else's":     {theirs.Namespace, "not this hub's"},
		"no such a namespace": {"is-not-there", `namespaces "is-not-there" not found`},
	} {
		if err := w.transport.Send(t.Context(), "strict", module(tc.namespace)); err == nil {
			t.Errorf("%s: it was sent", name)
		}
		parcels, err := w.transport.Parcels(t.Context(), "card")
		if r := parcels["strict"]; err != nil || r.Module == nil || !strings.Contains(r.Report.Refused, tc.want) {
			t.Errorf("%s: %+v: %v", name, r, err)
		}
	}
	have := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), have))
	if have.Labels[hub.NameLabel] != "" {
		t.Error("the hub took somebody else's Module over")
	}
	good := module(w.env.Namespace(t))
	w.must(w.transport.Send(t.Context(), "strict", good))
	w.eventually("what is taken is refused no more", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "card")
		if r := parcels["strict"].Report; err != nil || r.Refused != "" || !r.Applied {
			return fmt.Errorf("%+v: %w", r, err)
		}
		return nil
	})
}

// reached waits until a cluster answers.
func (w *world) reached(name string) {
	w.Helper()
	w.eventually("the cluster is reached", func(ctx context.Context) error {
		if target, err := w.target(ctx, name); err != nil || target == nil || target.Unreachable != "" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		return nil
	})
}

// TestTwoHubsOfOneCluster: what one has sent, the other neither changes nor takes back, and says
// so.
func TestTwoHubsOfOneCluster(t *testing.T) {
	w := newWorld(t)
	w.cluster("shared", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("shared")
	theirs := sent(w.env.Namespace(t), "fpga")
	theirs.Annotations[hub.HubAnnotation] = "hub-2/direct/shared"
	w.must(w.admin.Create(t.Context(), theirs))
	ours := sent(theirs.Namespace, "fpga")
	w.eventually("it is refused, whether the hub has seen it or asks", func(ctx context.Context) error {
		if err := w.transport.Send(ctx, "shared", ours); err == nil || !strings.Contains(err.Error(), "not this hub's") {
			return fmt.Errorf("the answer is %w", err)
		}
		parcels, err := w.transport.Parcels(ctx, "fpga")
		if r := parcels["shared"].Report; err != nil || !strings.Contains(r.Refused, "not this hub's") {
			return fmt.Errorf("%+v: %w", r, err)
		}
		return nil
	})
	gone, err := w.transport.Recall(t.Context(), "shared", client.ObjectKeyFromObject(ours))
	if !gone || err != nil {
		t.Errorf("nothing of ours was there, but: %v %v", gone, err)
	}
	have := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), have))
	if have.DeletionTimestamp != nil || have.Annotations[hub.HubAnnotation] != "hub-2/direct/shared" {
		t.Errorf("it is %+v", have.ObjectMeta)
	}
}

// TestAModuleMovesToAnotherNamespace, and leaves none behind.
func TestAModuleMovesToAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.cluster("moving", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("moving")
	before, after := sent(w.env.Namespace(t), "nvme"), sent(w.env.Namespace(t), "nvme")
	w.must(w.transport.Send(t.Context(), "moving", before))
	w.only("moving", after)
}

// TestWhatAMoveDidNotSeeGoesLater: the old Module may come into the hub's cache after the new one
// was sent.
func TestWhatAMoveDidNotSeeGoesLater(t *testing.T) {
	w := newWorld(t)
	w.cluster("late", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("late")
	before, after := sent(w.env.Namespace(t), "sas"), sent(w.env.Namespace(t), "sas")
	w.only("late", after)
	w.eventually("the hub sees that it is there", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "sas")
		if err == nil && !parcels["late"].Report.Applied {
			err = errors.New("it does not")
		}
		return err
	})
	w.must(w.admin.Create(t.Context(), hub.From(hub.Sender(self, "direct", "late"), before)))
	w.only("late", after)
}

// only sends a Module until it is the only one of its name in the cluster.
func (w *world) only(cluster string, m *v1beta1.Module) {
	w.Helper()
	w.eventually("only the new one is there", func(ctx context.Context) error {
		if err := w.transport.Send(ctx, cluster, m); err != nil {
			return err
		}
		var list v1beta1.ModuleList
		if err := w.admin.List(ctx, &list, client.MatchingLabels{hub.NameLabel: m.Name}); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Namespace != m.Namespace {
			return fmt.Errorf("%d Modules", len(list.Items))
		}
		return nil
	})
}

// sent is a Module as a hub sends it.
func sent(namespace, name string) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{hub.NameLabel: name},
			Annotations: map[string]string{hub.RevisionAnnotation: "r1"},
		},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe: v1beta1.ModprobeSpec{ModuleName: name},
				KernelMappings: []v1beta1.KernelMapping{
					{Literal: "6.1.0", Architecture: "arm64", ContainerImage: "r.example/" + name + ":arm64"},
					{Regexp: "^6", ContainerImage: "r.example/" + name + ":1"},
				},
			}}},
	}
}

// TestAClusterThatCannotBeReachedSaysWhy, holds nobody up and goes with its Secret.
func TestAClusterThatCannotBeReachedSaysWhy(t *testing.T) {
	w := newWorld(t)
	nobody := w.env.Config(t, env.Agent)
	away := rest.CopyConfig(nobody)
	away.Host = "https://127.0.0.1:1"
	for name, tc := range map[string]struct {
		kubeconfig []byte
		want       string
	}{
		"broken":    {[]byte("{"), "Secret drover-system/broken, key kubeconfig: is not a kubeconfig"},
		"away":      {w.kubeconfig(away), "connection refused"},
		"forbidden": {w.kubeconfig(nobody), "that the kubeconfig's user may list Modules"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := w.cluster(name, tc.kubeconfig)
			w.eventually("it says why", func(ctx context.Context) error {
				target, err := w.target(ctx, name)
				if err != nil || target == nil || !target.Unknown || !strings.Contains(target.Unreachable, tc.want) {
					return fmt.Errorf("%+v: %w", target, err)
				}
				return nil
			})
			if _, err := w.transport.Parcels(t.Context(), "nic"); err != nil {
				t.Errorf("one cluster keeps the hub from looking at all: %v", err)
			}
			w.must(w.admin.Delete(t.Context(), secret))
			w.eventually("it is none any more", func(ctx context.Context) error {
				if target, err := w.target(ctx, name); err != nil || target != nil {
					return fmt.Errorf("%+v: %w", target, err)
				}
				return nil
			})
		})
	}
}
