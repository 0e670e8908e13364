// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/shared/kube"
)

// requestTimeout bounds one request to a cluster: one that hangs must not delay the others.
const requestTimeout = 15 * time.Second

// connection to a cluster.
type connection struct {
	cache  cache.Cache
	client client.Client
	rest   rest.Interface
	// server is the address of the cluster's API server.
	server string
	// namespace of the cluster's operator.
	namespace string
	// sender of this hub's Modules.
	sender string
	// synced: the cache is filled. Reads would wait for that.
	synced atomic.Bool

	mu sync.Mutex
	// refused is what the cluster refused, by name.
	refused map[string]*refusal
}

// refusal is a Module that a cluster refused, and its answer.
type refusal struct {
	module *v1beta1.Module
	text   string
}

// note keeps an API server's refusal of a Module. What did not arrive was not refused.
func (c *connection) note(m *v1beta1.Module, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		delete(c.refused, m.Name)
	case hub.Refuses(err):
		if c.refused == nil {
			c.refused = map[string]*refusal{}
		}
		c.refused[m.Name] = &refusal{module: m, text: err.Error()}
	}
}

// inherit takes over what the cluster refused by the connection before.
func (c *connection) inherit(before *connection) {
	before.mu.Lock()
	refused := maps.Clone(before.refused)
	before.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = refused
	}
}

// forget forgets a refusal.
func (c *connection) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, name)
}

// refusal of the Module of a name; nil: there is none.
func (c *connection) refusal(name string) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[name]
}

// connect reads a kubeconfig. Nothing is asked of the cluster yet.
func connect(kubeconfig []byte, namespace, sender string) (*connection, error) {
	config, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	// Without discovery: a cluster that does not answer must have a connection, too.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1beta1.GroupVersion.WithKind("Module"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	ours, err := labels.NewRequirement(hub.NameLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select Modules: %w", err)
	}
	informers, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, ByObject: map[client.Object]cache.ByObject{
		&v1beta1.Module{}: {Label: labels.NewSelector().Add(*ours)},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, Platforms)},
		}},
	}})
	if err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	hasty := rest.CopyConfig(config)
	hasty.Timeout = requestTimeout
	c, err := client.New(hasty, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	asks, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(hasty))
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return &connection{cache: informers, client: c, rest: asks, server: config.Host, namespace: namespace, sender: sender}, nil
}

// run keeps the cache until ctx ends, and reports changes.
func (c *connection) run(ctx context.Context, changed func(name string)) error {
	modules, err1 := c.cache.GetInformer(ctx, &v1beta1.Module{}, cache.BlockUntilSynced(false))
	platforms, err2 := c.cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	tell := func(object any) {
		if tomb, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tomb.Obj
		}
		switch o := object.(type) {
		case *v1beta1.Module: // anybody may use the label
			if hub.Of(o, c.sender) {
				changed(o.Name)
			}
		case *corev1.ConfigMap:
			changed("")
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, now any) { tell(now) }}
	_, err1 = modules.AddEventHandler(handler)
	_, err2 = platforms.AddEventHandler(handler)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if err := c.cache.Start(ctx); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// claims are what the cluster reports.
func (c *connection) claims(ctx context.Context) (map[string]string, error) {
	said := &corev1.ConfigMap{}
	if !c.synced.Load() {
		return nil, nil
	}
	err := c.cache.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: Platforms}, said)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", Platforms, err)
	}
	return said.Data, nil
}

// module is the cluster's Module of a name; nil: none.
func (c *connection) module(ctx context.Context, name string) (*v1beta1.Module, error) {
	all, err := c.modules(ctx, name)
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}

// modules are this hub's Modules of a name in the cluster: one, and while it moves to another
// namespace a second; the new one comes first.
func (c *connection) modules(ctx context.Context, name string) ([]*v1beta1.Module, error) {
	var list v1beta1.ModuleList
	if !c.synced.Load() {
		return nil, nil
	}
	if err := c.cache.List(ctx, &list, client.MatchingLabels{hub.NameLabel: name}); err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	var all []*v1beta1.Module
	for i := range list.Items {
		if m := &list.Items[i]; m.Name == name && hub.Of(m, c.sender) {
			all = append(all, m)
		}
	}
	going := func(m *v1beta1.Module) int64 {
		if m.DeletionTimestamp != nil {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b *v1beta1.Module) int {
		return cmp.Or(cmp.Compare(going(a), going(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace))
	})
	return all, nil
}

// names are those of all Modules of this hub in the cluster.
func (c *connection) names(ctx context.Context) ([]string, error) {
	var list v1beta1.ModuleList
	if err := c.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	var names []string
	for i := range list.Items {
		if hub.Of(&list.Items[i], c.sender) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// remove deletes Modules, each if nobody has changed it since.
func (c *connection) remove(ctx context.Context, all []*v1beta1.Module) error {
	var errs []error
	for _, m := range all {
		if m.DeletionTimestamp == nil {
			errs = append(errs, kube.DeleteUnchanged(ctx, c.client, m))
		}
	}
	return errors.Join(errs...)
}

// send applies a Module that the cluster does not have yet. It does nothing before the cluster has
// answered: that is an event.
func (c *connection) send(ctx context.Context, m *v1beta1.Module) error {
	if !c.synced.Load() {
		return nil
	}
	wish, err := kube.Wish(m, v1beta1.GroupVersion.WithKind("Module"))
	if err != nil {
		return fmt.Errorf("write Module %s/%s: %w", m.Namespace, m.Name, err)
	}
	have := &v1beta1.Module{}
	switch err := c.cache.Get(ctx, client.ObjectKeyFromObject(m), have); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get Module: %w", err)
	case err == nil && hub.OfAnother(have, c.sender):
		return fmt.Errorf("write Module %s/%s: %w", m.Namespace, m.Name, hub.ErrTaken)
	case err == nil:
		if settled, err := kube.Settled(wish, have); err != nil {
			return err
		} else if settled {
			return c.leave(ctx, have)
		}
	default: // the cache has only the hub's, and may be late
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(m), have); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get Module: %w", err)
		} else if err == nil && (have.Labels[hub.NameLabel] != m.Labels[hub.NameLabel] || hub.OfAnother(have, c.sender)) {
			return fmt.Errorf("write Module %s/%s: %w", m.Namespace, m.Name, hub.ErrTaken)
		}
	}
	if err := c.move(ctx, m, wish); err != nil {
		return err
	}
	if err := kube.Apply(ctx, c.client, Owner, client.ApplyConfigurationFromUnstructured(wish)); err != nil {
		return fmt.Errorf("write Module %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// move deletes a Module from other namespaces, which unloads it, if the cluster takes the new one.
func (c *connection) move(ctx context.Context, m *v1beta1.Module, wish *unstructured.Unstructured) error {
	others, err := c.elsewhere(ctx, m)
	if err != nil || len(others) == 0 {
		return err
	}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wish.DeepCopy()), Owner, client.ForceOwnership,
		client.DryRunAll); err != nil {
		return fmt.Errorf("move Module %s to namespace %s: %w", m.Name, m.Namespace, err)
	}
	return c.remove(ctx, others)
}

// leave deletes a Module that has moved from other namespaces: the cache may have been late.
func (c *connection) leave(ctx context.Context, m *v1beta1.Module) error {
	if m.DeletionTimestamp != nil {
		return nil // it moves when it is gone and sent again
	}
	others, err := c.elsewhere(ctx, m)
	if err != nil {
		return err
	}
	return c.remove(ctx, others)
}

// elsewhere are this hub's Modules of the same name in other namespaces of the cluster.
func (c *connection) elsewhere(ctx context.Context, m *v1beta1.Module) ([]*v1beta1.Module, error) {
	all, err := c.modules(ctx, m.Name)
	return slices.DeleteFunc(all, func(other *v1beta1.Module) bool { return other.Namespace == m.Namespace }), err
}

// configOf reads a kubeconfig that names no file and no program: they would be the hub's.
func configOf(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("is empty")
	}
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("is not a kubeconfig: %w", err)
	}
	for name, user := range loaded.AuthInfos {
		if err := inline(user); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
	}
	for name, cluster := range loaded.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, fmt.Errorf("cluster %s: certificate-authority names a file: use certificate-authority-data", name)
		}
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("is not a usable kubeconfig: %w", err)
	}
	return config, nil
}

func inline(user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil:
		return errors.New("exec runs a program: use a token or client-certificate-data")
	case user.AuthProvider != nil:
		return errors.New("auth-provider is not supported: use a token or client-certificate-data")
	case user.TokenFile != "", user.ClientCertificate != "", user.ClientKey != "":
		return errors.New("names a file: use token, client-certificate-data and client-key-data")
	}
	return nil
}
