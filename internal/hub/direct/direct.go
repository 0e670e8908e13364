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
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

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

	// pingPeriod is how often a cluster is asked whether it answers.
	pingPeriod = 30 * time.Second
	// startTimeout bounds how long it may take to answer, with a filled cache.
	startTimeout = 30 * time.Second
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

// member is a cluster.
type member struct {
	name       string
	secret     types.UID
	version    string
	kubeconfig []byte
	labels     map[string]string
	end        context.CancelFunc
	// connection is nil if the kubeconfig cannot be used.
	connection  *connection
	unreachable string
	// first: it existed when this process began to look. looked: it has been asked once.
	first, looked bool
	// successor takes over once it has been asked; nil: none.
	successor *member
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

// stop ends the connection, and that of its successor.
func (m *member) stop() {
	if m.successor != nil {
		m.successor.stop()
	}
	m.end()
}

// renew is the member for a Secret that is new (m: nil) or has changed. Where a cluster answers,
// its connection serves until the one of another kubeconfig has been asked: a renewed token must
// not make what the cluster has unknown, or start the times anew for which Modules have been ready.
func (t *Transport) renew(ctx context.Context, m *member, secret *corev1.Secret) *member {
	if m == nil {
		return t.begin(ctx, secret)
	}
	if m.secret == secret.UID && bytes.Equal(m.kubeconfig, secret.Data[KubeconfigKey]) {
		m.version, m.labels = secret.ResourceVersion, secret.Labels
		if m.successor != nil {
			m.successor.version, m.successor.labels = m.version, m.labels
		}
		return m
	}
	next := t.begin(ctx, secret)
	if m.secret != secret.UID || m.connection == nil || m.unreachable != "" || next.connection == nil {
		m.stop()
		return next
	}
	if m.successor != nil {
		m.successor.stop()
	}
	m.successor, m.version, m.kubeconfig, m.labels = next, next.version, next.kubeconfig, next.labels
	return m
}

// begin connects to a cluster and watches the connection until ctx ends.
func (t *Transport) begin(ctx context.Context, secret *corev1.Secret) *member {
	ctx, end := context.WithCancel(ctx)
	m := &member{
		name: secret.Name, secret: secret.UID, version: secret.ResourceVersion, kubeconfig: secret.Data[KubeconfigKey],
		labels: secret.Labels, end: end, first: !t.listed,
	}
	c, err := connect(secret.Data[KubeconfigKey], t.namespace, hub.Sender(t.hub, t.Name(), secret.Name))
	if err != nil {
		m.looked = true
		m.unreachable = fmt.Sprintf("Secret %s/%s, key %s: %v", secret.Namespace, secret.Name, KubeconfigKey, err)
		return m
	}
	m.connection, m.unreachable = c, "it has not answered yet"
	go t.look(ctx, m)
	return m
}

// look keeps a cluster's cache running and notes whether the cluster answers.
func (t *Transport) look(ctx context.Context, m *member) {
	go func() {
		if err := m.connection.run(ctx, t.changed); err != nil && ctx.Err() == nil {
			t.say(m, err)
		}
	}()
	ticker := time.NewTicker(pingPeriod)
	defer ticker.Stop()
	for {
		if t.say(m, m.connection.answers(ctx, startTimeout)) {
			t.found(ctx, m.connection)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// found reports all Modules of a cluster that answers again, also those that nobody wants.
func (t *Transport) found(ctx context.Context, c *connection) {
	names, err := c.names(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Look at a cluster's Modules")
	}
	for _, name := range names {
		t.changed(name)
	}
}

// say notes whether a cluster answers. anew: it did not before.
func (t *Transport) say(m *member, err error) (anew bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	same := m.looked && (m.unreachable == "") == (text == "")
	m.unreachable, m.looked = text, true
	if before := t.members[m.name]; before != nil && before.successor == m {
		before.successor = nil
		before.stop()
		t.members[m.name] = m
	}
	changed := t.changed
	t.mu.Unlock()
	if !same {
		changed("")
	}
	return !same && text == ""
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
		target := hub.Target{Name: name, Labels: m.labels, Unreachable: m.unreachable, Unknown: m.connection == nil ||
			!m.connection.synced.Load()}
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

// connections by cluster.
func (t *Transport) connections() map[string]*connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]*connection{}
	for name, m := range t.members {
		if m.connection != nil {
			all[name] = m.connection
		}
	}
	return all
}

// Parcels implements [hub.Transport], for a cluster that does not answer by what was last known.
func (t *Transport) Parcels(ctx context.Context, name string) (map[string]hub.Parcel, error) {
	parcels := map[string]hub.Parcel{}
	for cluster, c := range t.connections() {
		m, err := c.module(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", cluster, err)
		}
		parcel := hub.Parcel{Module: m}
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
	c := t.reached(cluster)
	if c == nil {
		return false, nil
	}
	c.forget(m.Name)
	all, err := c.modules(ctx, m.Name)
	if err != nil || len(all) == 0 {
		return err == nil, err
	}
	return false, c.remove(ctx, all)
}
