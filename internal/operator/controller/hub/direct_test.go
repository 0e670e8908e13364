// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/operator"
	controller "github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/testkit/env"
)

const (
	patience = time.Minute
	self     = "hub-1"
)

// directly gives a world a hub that reaches its clusters by kubeconfigs; each one is the hub's own
// cluster, by another user. It has begun to look when watch is called.
func (w *world) directly() (transport *direct.Transport, watch func()) {
	w.Helper()
	e := env.Get(w.T)
	e.Install(w.T, "spoke")
	config := e.Config(w.T, operator.HubName)
	secrets, err := cache.New(config, cache.Options{Scheme: w.admin.Scheme(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{env.OperatorNamespace: {}}},
	}})
	w.must(err)
	reads, err := client.New(config, client.Options{Scheme: w.admin.Scheme(), Cache: &client.CacheOptions{Reader: secrets}})
	w.must(err)
	as, err := client.New(config, client.Options{Scheme: w.admin.Scheme()})
	w.must(err)
	transport = direct.New(reads, secrets, env.OperatorNamespace, self)
	w.control = controller.New(as, as, controller.Options{
		Namespace: env.OperatorNamespace, BuildahImage: "q/buildah@" + digest, Gate: &gate.Gate{}, Hub: self,
		Transports: []hub.Transport{transport},
	})
	return transport, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		go func() { ended <- secrets.Start(ctx) }()
		go func() { ended <- transport.Watch(ctx, func(string) {}) }()
		w.Cleanup(func() {
			cancel()
			w.must(errors.Join(<-ended, <-ended))
		})
	}
}

// secret makes a cluster; its user is the one that config/spoke has for hubs. Where it is away,
// nothing answers.
func (w *world) secret(name string, away bool) *corev1.Secret {
	w.Helper()
	config := rest.CopyConfig(env.Get(w.T).Config(w.T, "drover-hub-access"))
	if away {
		config.Host = "https://127.0.0.1:1"
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	w.must(err)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: name,
			Labels: map[string]string{direct.ClusterLabel: "true", "world": w.name}},
		Data: map[string][]byte{direct.KubeconfigKey: content},
	}
	if err := w.admin.Create(w.Context(), s); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	} else if err != nil {
		w.must(w.admin.Patch(w.Context(), s, client.Merge))
	}
	w.Cleanup(func() { w.must(client.IgnoreNotFound(w.admin.Delete(context.Background(), s))) })
	return s
}

// eventually passes until something holds.
func (w *world) eventually(name, what string, holds func(context.Context, *hubv1beta1.ManagedClusterModule) error) {
	w.Helper()
	last := errors.New("was not asked")
	if err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if _, last = w.control.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); last != nil {
			return false, nil
		}
		m := &hubv1beta1.ManagedClusterModule{}
		if last = client.IgnoreNotFound(w.admin.Get(ctx, types.NamespacedName{Name: name}, m)); last == nil {
			last = holds(ctx, m)
		}
		return last == nil, nil
	}); err != nil {
		w.Fatalf("%s, within %s: %v", what, patience, last)
	}
}

// prebuilt asks for a Module that needs no image of the hub.
func (w *world) prebuilt() *hubv1beta1.ManagedClusterModule {
	return w.module(func(m *hubv1beta1.ManagedClusterModule) {
		m.Spec.SpokeNamespace = w.name
		m.Spec.ModuleSpec.ModuleLoader.Container.Build = nil
	})
}

func (w *world) says(reason, text string) func(context.Context, *hubv1beta1.ManagedClusterModule) error {
	return func(_ context.Context, m *hubv1beta1.ManagedClusterModule) error {
		for _, c := range m.Status.Conditions {
			if c.Type == v1beta1.ConditionReady && c.Reason == reason && strings.Contains(c.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", m.Status)
	}
}

// TestADeletionWaitsForAClusterThatIsNotReached, says so, and goes on when it is: nobody knows what
// the cluster has.
func TestADeletionWaitsForAClusterThatIsNotReached(t *testing.T) {
	w := newWorld(t)
	_, watch := w.directly()
	w.secret(w.name+"-away", true)
	watch()
	m := w.prebuilt()
	w.eventually(m.Name, "the cluster is told of", w.says(v1beta1.ReasonAgentMissing, "cluster "+w.name+"-away: the hub cannot reach "+
		"the cluster"))
	w.must(w.admin.Delete(t.Context(), m))
	w.eventually(m.Name, "the deletion says for whom it waits", w.says(v1beta1.ReasonAgentMissing, "is being deleted; waits for 1 "+
		"cluster; cluster "+w.name+"-away"))
	w.secret(w.name+"-away", false)
	w.eventually(m.Name, "it is gone", func(_ context.Context, m *hubv1beta1.ManagedClusterModule) error {
		if m.Name != "" {
			return fmt.Errorf("it says %+v", m.Status)
		}
		return nil
	})
}

// TestWhatIsLeftOfAHubIsRecalled: a Module whose ManagedClusterModule went while its cluster was
// unknown. What is of another hub, or has come by another way, stays.
func TestWhatIsLeftOfAHubIsRecalled(t *testing.T) {
	w := newWorld(t)
	_, watch := w.directly()
	watch()
	w.secret(w.name+"-metal", false)
	ours := hub.Sender(self, "direct", w.name+"-metal")
	for name, by := range map[string]string{"left": ours, "other": "hub-2/direct/" + w.name + "-metal",
		"twice": hub.Sender(self, "manifestwork", "metal")} {
		w.must(w.admin.Create(t.Context(), &v1beta1.Module{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.name, Name: w.name + name, Labels: map[string]string{hub.NameLabel: w.name + name},
				Annotations: map[string]string{hub.HubAnnotation: by},
			},
			Spec: w.prebuiltSpec(),
		}))
	}
	gone := func(ctx context.Context, name string) bool {
		err := w.admin.Get(ctx, types.NamespacedName{Namespace: w.name, Name: w.name + name}, &v1beta1.Module{})
		w.must(client.IgnoreNotFound(err))
		return err != nil
	}
	w.eventually(w.name+"left", "what is left is recalled", func(ctx context.Context, _ *hubv1beta1.ManagedClusterModule) error {
		if !gone(ctx, "left") {
			return errors.New("it is there")
		}
		return nil
	})
	for _, name := range []string{"other", "twice"} {
		w.eventually(w.name+name, "a pass", func(ctx context.Context, _ *hubv1beta1.ManagedClusterModule) error {
			if gone(ctx, name) {
				t.Errorf("%s: what somebody else has sent was recalled", name)
			}
			return nil
		})
	}
}

func (w *world) prebuiltSpec() v1beta1.ModuleSpec {
	return v1beta1.ModuleSpec{Selector: map[string]string{},
		ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
			KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:1"}},
		}}}
}

// TestAHubWithoutClustersSaysSo: to find none is to have looked.
func TestAHubWithoutClustersSaysSo(t *testing.T) {
	w := newWorld(t)
	_, watch := w.directly()
	watch()
	m := w.prebuilt()
	w.eventually(m.Name, "it says so", w.says(v1beta1.ReasonNoNodes, "no cluster is selected"))
}

// TestAHubThatBeginsWaitsForItsClusters: until it has looked at them, it takes none for absent. It
// writes nothing when they are as they were.
func TestAHubThatBeginsWaitsForItsClusters(t *testing.T) {
	w := newWorld(t)
	_, watch := w.directly()
	w.secret(w.name+"-metal", false)
	watch()
	m := w.prebuilt()
	w.eventually(m.Name, "the cluster has its Module", w.says(v1beta1.ReasonAwaitingDelivery, "sent"))
	version := func() string {
		w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		module := &v1beta1.Module{}
		w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.name, Name: m.Name}, module))
		return m.ResourceVersion + " " + module.ResourceVersion
	}
	before := version()
	transport, watch := w.directly() // another process
	w.pass(m)
	if now := version(); now != before {
		t.Errorf("before it has looked at its clusters, a hub wrote: %s, %s before", now, before)
	}
	watch()
	w.eventually(m.Name, "it has looked at its clusters", func(ctx context.Context, _ *hubv1beta1.ManagedClusterModule) error {
		_, err := transport.Targets(ctx)
		return err
	})
	w.pass(m)
	if now := version(); now != before {
		t.Errorf("a hub that began again wrote: %s, %s before", now, before)
	}
}
