// SPDX-License-Identifier: Apache-2.0

// Package ocm brings Modules to clusters by Open Cluster Management: in a ManifestWork, which the
// cluster's own work agent fetches and applies. The hub has no rights in any cluster.
package ocm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=work.open-cluster-management.io,resources=manifestworks,verbs=get;list;watch;create;patch;delete

// Owner is the field owner of ManifestWorks.
const Owner client.FieldOwner = "drover-hub"

// servedPeriod is how often the hub looks whether Open Cluster Management is installed by now.
const servedPeriod = 10 * time.Second

// Transport implements [hub.Transport].
type Transport struct {
	client client.Client
	cache  cache.Informers
	hub    string

	mu sync.Mutex
	// read are works as last read, by ManagedClusterModule and cluster.
	read map[string]map[string]*read
}

// read is what is in one version of a work.
type read struct {
	version string
	parcel  hub.Parcel
	// settled is the revision and declaration that this version is known to bring.
	settled string
}

// New makes the transport of a hub. c reads from the cache, which shows c's own writes.
func New(c client.Client, informers cache.Informers, hub string) *Transport {
	return &Transport{client: c, cache: informers, hub: hub, read: map[string]map[string]*read{}}
}

// Name implements [hub.Transport].
func (*Transport) Name() string { return "manifestwork" }

// Watch implements [hub.Transport].
func (t *Transport) Watch(ctx context.Context, changed func(name string)) error {
	logged := false
	err := wait.PollUntilContextCancel(ctx, servedPeriod, true, func(context.Context) (bool, error) {
		served, err := t.served()
		if err == nil && !served && !logged {
			logged = true
			log.FromContext(ctx).Info("Open Cluster Management is not installed here: no ManifestWorks are made until it is")
		}
		return served, err
	})
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	clusters, err := t.cache.GetInformer(ctx, &clusterv1.ManagedCluster{})
	if err != nil {
		return ignoreEnd(ctx, fmt.Errorf("watch ManagedClusters: %w", err))
	}
	works, err := t.cache.GetInformer(ctx, &workv1.ManifestWork{})
	if err != nil {
		return ignoreEnd(ctx, fmt.Errorf("watch ManifestWorks: %w", err))
	}
	_, err1 := clusters.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed("") }, DeleteFunc: func(any) { changed("") },
		UpdateFunc: func(before, now any) {
			if !sameCluster(before, now) {
				changed("")
			}
		},
	})
	name := func(object any) {
		if tomb, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tomb.Obj
		}
		if work, ok := object.(*workv1.ManifestWork); ok && work.Labels[hub.NameLabel] != "" {
			changed(work.Labels[hub.NameLabel])
		}
	}
	_, err2 := works.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: name, DeleteFunc: name,
		UpdateFunc: func(_, now any) { name(now) }})
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	changed("")
	<-ctx.Done()
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is why
	}
	return err
}

// served reports whether the API server has the kinds.
func (t *Transport) served() (bool, error) {
	for _, kind := range []schema.GroupVersionKind{
		clusterv1.SchemeGroupVersion.WithKind("ManagedCluster"), workv1.SchemeGroupVersion.WithKind("ManifestWork"),
	} {
		if _, err := t.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("look for %s: %w", kind, err)
		}
	}
	return true, nil
}

// present fails if the kinds are not served.
func (t *Transport) present() error {
	served, err := t.served()
	if err == nil && !served {
		err = fmt.Errorf("open cluster management %w", hub.ErrAbsent)
	}
	return err
}

// sameCluster: nothing has changed but what its lease renews.
func sameCluster(before, now any) bool {
	a, okA := before.(*clusterv1.ManagedCluster)
	b, okB := now.(*clusterv1.ManagedCluster)
	if !okA || !okB {
		return false
	}
	return equality.Semantic.DeepEqual(targetOf(a), targetOf(b)) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		a.Spec.HubAcceptsClient == b.Spec.HubAcceptsClient
}

// Targets implements [hub.Transport]: the clusters that the hub has accepted.
func (t *Transport) Targets(ctx context.Context) ([]hub.Target, error) {
	if err := t.present(); err != nil {
		return nil, err
	}
	var list clusterv1.ManagedClusterList
	if err := t.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	targets := make([]hub.Target, 0, len(list.Items))
	for i := range list.Items {
		if c := &list.Items[i]; c.DeletionTimestamp == nil && c.Spec.HubAcceptsClient {
			targets = append(targets, targetOf(c))
		}
	}
	return targets, nil
}

func targetOf(c *clusterv1.ManagedCluster) hub.Target {
	t := hub.Target{Name: c.Name, Labels: c.Labels, Claims: map[string]string{}}
	for _, claim := range c.Status.ClusterClaims {
		if claim.Name == hub.KernelsClaim || claim.Name == hub.PlatformsClaim {
			t.Claims[claim.Name] = claim.Value
		}
	}
	if c := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); c != nil &&
		c.Status != metav1.ConditionTrue {
		t.Unreachable = c.Message
	}
	return t
}

// Parcels implements [hub.Transport].
func (t *Transport) Parcels(ctx context.Context, name string) (map[string]hub.Parcel, error) {
	if err := t.present(); err != nil {
		return nil, err
	}
	var list workv1.ManifestWorkList
	if err := t.client.List(ctx, &list, client.MatchingLabels{hub.NameLabel: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManifestWorks: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before, now := t.read[name], make(map[string]*read, len(list.Items))
	parcels := make(map[string]hub.Parcel, len(list.Items))
	for i := range list.Items {
		work := &list.Items[i]
		if work.Name != name {
			continue // somebody else's, with our label
		}
		r := before[work.Namespace]
		if r == nil || r.version != work.ResourceVersion {
			r = &read{version: work.ResourceVersion, parcel: hub.Parcel{
				Module: hub.ModuleOf(work), Report: hub.ReportOfWork(work), Going: work.DeletionTimestamp != nil,
			}}
		}
		now[work.Namespace], parcels[work.Namespace] = r, r.parcel
	}
	if t.read[name] = now; len(now) == 0 {
		delete(t.read, name)
	}
	return parcels, nil
}

// settled reports whether a version of a work is known to bring a revision of its Module.
func (t *Transport) settled(work *workv1.ManifestWork, revision string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.read[work.Name][work.Namespace]
	return r != nil && r.version == work.ResourceVersion && r.settled == revision
}

func (t *Transport) settle(work *workv1.ManifestWork, revision string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.read[work.Name][work.Namespace]; r != nil && r.version == work.ResourceVersion {
		r.settled = revision
	}
}

// Send implements [hub.Transport].
func (t *Transport) Send(ctx context.Context, cluster string, m *v1beta1.Module) error {
	have, revision := &workv1.ManifestWork{}, m.Annotations[hub.RevisionAnnotation]+" "+m.Annotations[hub.DeclarationAnnotation]
	getErr := t.client.Get(ctx, types.NamespacedName{Namespace: cluster, Name: m.Name}, have)
	switch {
	case client.IgnoreNotFound(getErr) != nil:
		return fmt.Errorf("get ManifestWork: %w", getErr)
	case getErr == nil && have.Labels[hub.NameLabel] != m.Name:
		return fmt.Errorf("ManifestWork %s/%s: %w", cluster, m.Name, hub.ErrTaken)
	case getErr == nil && t.settled(have, revision):
		return nil
	}
	work, err := hub.WorkOf(cluster, hub.From(hub.Sender(t.hub, t.Name(), cluster), m))
	if err != nil {
		return err
	}
	wish, err := kube.Wish(work, workv1.SchemeGroupVersion.WithKind("ManifestWork"))
	if err != nil {
		return fmt.Errorf("ManifestWork %s/%s: %w", cluster, m.Name, err)
	}
	if getErr == nil {
		settled, err := kube.Settled(wish, undefaulted(have))
		if settled {
			t.settle(have, revision)
		}
		if err != nil || settled {
			return err
		}
	}
	if err := kube.Apply(ctx, t.client, Owner, client.ApplyConfigurationFromUnstructured(wish)); err != nil {
		return fmt.Errorf("ManifestWork %s/%s: %w", cluster, m.Name, err)
	}
	return nil
}

// undefaulted is a work without the API server's default of a field of newer releases.
func undefaulted(work *workv1.ManifestWork) *workv1.ManifestWork {
	work = work.DeepCopy()
	for i := range work.Spec.ManifestConfigs {
		work.Spec.ManifestConfigs[i].FeedbackScrapeType = ""
	}
	return work
}

// Recall implements [hub.Transport].
func (t *Transport) Recall(ctx context.Context, cluster string, m types.NamespacedName) (gone bool, err error) {
	work := &workv1.ManifestWork{}
	err = t.client.Get(ctx, types.NamespacedName{Namespace: cluster, Name: m.Name}, work)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("get ManifestWork: %w", err)
	case err != nil || work.Labels[hub.NameLabel] != m.Name:
		return true, nil
	case work.DeletionTimestamp != nil:
		return false, nil
	}
	return false, kube.DeleteUnchanged(ctx, t.client, work)
}
