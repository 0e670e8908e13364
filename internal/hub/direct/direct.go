// SPDX-License-Identifier: Apache-2.0

// Package direct brings Modules to clusters by their kubeconfigs: it applies them there and reads
// what becomes of them. Each cluster has a Secret in the operator's namespace:
//
//	metadata: {name: CLUSTER, labels: {drover.dev/cluster: "true", …}}   # the labels are the cluster's
//	stringData: {kubeconfig: …}                                          # everything inline: no files, no programs
//
// A cluster reports what its nodes run in a ConfigMap, see [Platforms].
package direct

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch,namespace=drover-system

const (
	// ClusterLabel is on each Secret that stands for a cluster.
	ClusterLabel = "drover.dev/cluster"
	// KubeconfigKey is the Secret's key.
	KubeconfigKey = "kubeconfig"
	// Platforms is the ConfigMap, in the namespace of a cluster's operator, in which it reports what
	// its nodes run; its keys are the names of claims.
	Platforms = "drover-platforms"
	// Owner is the field owner in clusters.
	Owner client.FieldOwner = "drover-hub"
)

// Transport implements [hub.Transport].
type Transport struct {
	client    client.Client
	cache     cache.Informers
	namespace string
	hub       string

	mu      sync.Mutex
	members map[string]*member
	changed func(name string)
	// listed: the Secrets have been read.
	listed bool
}

// New makes the transport of a hub. c reads Secrets of the namespace from the cache.
func New(c client.Client, informers cache.Informers, namespace, hub string) *Transport {
	return &Transport{client: c, cache: informers, namespace: namespace, hub: hub, members: map[string]*member{}}
}

// Name implements [hub.Transport].
func (*Transport) Name() string { return "direct" }

// Watch implements [hub.Transport].
func (t *Transport) Watch(ctx context.Context, changed func(name string)) error {
	t.mu.Lock()
	t.changed = changed
	t.mu.Unlock()
	secrets, err := t.cache.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch Secrets: %w", err)
	}
	again := make(chan struct{}, 1)
	poke := func(any) {
		select {
		case again <- struct{}{}:
		default:
		}
	}
	if _, err := secrets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: poke, DeleteFunc: poke, UpdateFunc: func(_, now any) { poke(now) },
	}); err != nil {
		return fmt.Errorf("watch Secrets: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), secrets.HasSynced) {
		return nil // it has ended
	}
	poke(nil) // there may be none
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			if err := t.sync(ctx); err != nil {
				log.FromContext(ctx).Error(err, "Read the Secrets of clusters")
			}
		}
	}
}

// sync connects to clusters that are new or have another Secret, and ends connections to others.
func (t *Transport) sync(ctx context.Context) error {
	var list corev1.SecretList
	if err := t.client.List(ctx, &list, client.InNamespace(t.namespace), client.HasLabels{ClusterLabel}); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	t.mu.Lock()
	there := map[string]bool{}
	for i := range list.Items {
		secret := &list.Items[i]
		there[secret.Name] = true
		m := t.members[secret.Name]
		if m != nil && m.secret == secret.UID && m.version == secret.ResourceVersion {
			continue
		}
		t.members[secret.Name] = t.renew(ctx, m, secret)
	}
	for name, m := range t.members {
		if !there[name] {
			m.stop()
			delete(t.members, name)
		}
	}
	t.listed = true
	t.mu.Unlock()
	t.changed("")
	return nil
}

// Targets implements [hub.Transport].
func (t *Transport) Targets(ctx context.Context) ([]hub.Target, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	targets := make([]hub.Target, 0, len(t.members))
	if !t.listed {
		return nil, hub.ErrBeginning
	}
	for name, m := range t.members {
		if m.first && !m.looked {
			return nil, hub.ErrBeginning
		}
		target := hub.Target{Name: name, Labels: m.labels, Unreachable: m.unreachable, Unknown: !m.known(), New: !m.first}
		if m.connection != nil {
			var err error
			if target.Claims, err = m.connection.claims(ctx); err != nil && target.Unreachable == "" {
				target.Unreachable = err.Error()
			}
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// reached is the connection to a cluster; nil: it does not answer.
func (t *Transport) reached(cluster string) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[cluster]; m != nil && m.unreachable == "" {
		return m.connection
	}
	return nil
}

// link is the connection to a cluster, and why the hub does not reach that; empty: it does.
type link struct {
	*connection
	away string
}

// links by cluster.
func (t *Transport) links() map[string]link {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]link{}
	for name, m := range t.members {
		if m.connection != nil {
			all[name] = link{m.connection, m.unreachable}
		}
	}
	return all
}

// Parcels implements [hub.Transport], for a cluster that does not answer by what was last known.
func (t *Transport) Parcels(ctx context.Context, name string) (map[string]hub.Parcel, error) {
	parcels := map[string]hub.Parcel{}
	for cluster, c := range t.links() {
		m, err := c.module(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", cluster, err)
		}
		parcel := hub.Parcel{Module: m, Away: c.away}
		if m != nil {
			parcel.Report, parcel.Going = hub.ReportOf(m), m.DeletionTimestamp != nil
		}
		if r := c.refusal(name); r != nil {
			parcel.Module, parcel.Report.Applied, parcel.Nothing = r.module, false, m == nil
			parcel.Report.Refuse(r.text)
		}
		if parcel.Module != nil {
			parcels[cluster] = parcel
		}
	}
	return parcels, nil
}

// Send implements [hub.Transport].
func (t *Transport) Send(ctx context.Context, cluster string, m *v1beta1.Module) error {
	c := t.reached(cluster)
	if c == nil {
		return nil
	}
	m = hub.From(c.sender, m)
	err := c.send(ctx, m)
	c.note(m, err)
	return err
}

// Recall implements [hub.Transport].
func (t *Transport) Recall(ctx context.Context, cluster string, m types.NamespacedName) (gone bool, err error) {
	c := t.links()[cluster]
	if c.connection == nil || !c.synced.Load() {
		return false, nil
	}
	all, err := c.modules(ctx, m.Name)
	if err != nil || c.away != "" && len(all) > 0 {
		return false, err
	}
	c.forget(m.Name)
	if len(all) == 0 {
		return true, nil
	}
	return false, c.remove(ctx, all)
}
