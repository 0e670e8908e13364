// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/reported"
	"github.com/drover-project/drover/internal/shared/version"
)

// gatherer reads a cluster into a snapshot.
type gatherer struct {
	*Snapshot
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	dates   *dates
}

// dates remembers the clock of the last answer.
type dates struct {
	mu   sync.Mutex
	last time.Time
}

// RoundTripper that notes the Date of each answer.
type dated struct {
	next  http.RoundTripper
	dates *dates
}

// RoundTrip is http.RoundTripper's.
func (d dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(request)
	if err != nil {
		return nil, err //nolint:wrapcheck // the client wraps it with the request
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.dates.mu.Lock()
		d.dates.last = at
		d.dates.mu.Unlock()
	}
	return response, nil
}

func (d *dates) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// Gather reads the cluster. What the user may not read is noted in the snapshot.
func Gather(ctx context.Context, config *rest.Config, clock clock.PassiveClock) (*Snapshot, error) {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // such as those of deprecated versions, and of the dry run
	seen := &dates{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next: next, dates: seen} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	g := &gatherer{Snapshot: &Snapshot{Client: version.Version, Unseen: map[string]string{}}, kube: client, dynamic: objects, dates: seen}
	for _, read := range []func(context.Context) error{
		g.server, g.features, g.namespaces, g.definitions, g.policies, g.hooks, g.workloads, g.agentPods, g.nodes, g.leases, g.own, g.taints,
		g.trial,
	} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	g.Now, g.ServerNow = clock.Now(), seen.now()
	return g.Snapshot, nil
}

// page is how many objects are asked for at once.
const page = 500

// pages reads a list to its end.
func pages[L metav1.ListInterface](ctx context.Context, read func(context.Context, metav1.ListOptions) (L, error), o metav1.ListOptions,
	each func(L)) error {
	for o.Limit = page; ; {
		list, err := read(ctx, o)
		if err != nil {
			return err
		}
		each(list)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// outcome notes that a part may not be read. A kind that is not served, or an object that is not
// there, is no error either.
func (g *gatherer) outcome(part, right string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		g.Unseen[part] = right
		return nil
	}
	return fmt.Errorf("read %s: %w", part, err)
}

// server reads version and kinds. Nothing else can be said of a cluster that does not tell them.
func (g *gatherer) server(context.Context) error {
	known, err := g.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the API server's version: %w", err)
	}
	g.Server, g.Resources = known.GitVersion, map[schema.GroupVersionResource]bool{}
	_, lists, err := g.kube.Discovery().ServerGroupsAndResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return fmt.Errorf("ask what the API server serves: %w", err)
	}
	if partly != nil {
		for group := range partly.Groups {
			g.Silent = append(g.Silent, group.String())
		}
	}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("read what the API server serves: %w", err)
		}
		for i := range list.APIResources {
			g.Resources[group.WithResource(list.APIResources[i].Name)] = true
		}
	}
	return nil
}

func (g *gatherer) namespaces(ctx context.Context) error {
	g.Namespaces = map[string]*corev1.Namespace{}
	return g.outcome(partSpaces, "list on namespaces (cluster-wide)", pages(ctx, g.kube.CoreV1().Namespaces().List, metav1.ListOptions{},
		func(l *corev1.NamespaceList) {
			for i := range l.Items {
				g.Namespaces[l.Items[i].Name] = &l.Items[i]
			}
		}))
}

// imageDefinition is of the kind that builds need, and ruleDefinition of that which says who may
// load what.
const (
	imageDefinition = "moduleimages.drover.dev"
	ruleDefinition  = rulesResource + "." + rulesGroup
)

// definitions of ours. Each is read alone: some roles show single ones.
func (g *gatherer) definitions(ctx context.Context) error {
	g.Definitions = map[string]*unstructured.Unstructured{}
	kind := definition.Kind.GroupVersion().WithResource("customresourcedefinitions")
	for _, name := range append([]string{imageDefinition, ruleDefinition}, definition.Names...) {
		found, err := g.dynamic.Resource(kind).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			g.Definitions[name] = found
		}
		if err := g.outcome(partCRDs, "get on customresourcedefinitions.apiextensions.k8s.io", err); err != nil {
			return err
		}
	}
	return nil
}

// workloads are the operator, the hub and the agents.
func (g *gatherer) workloads(ctx context.Context) error {
	right := "get on deployments.apps and daemonsets.apps in namespace " + system
	for name, into := range map[string]**appsv1.Deployment{operatorName: &g.Operator, "drover-hub": &g.Hub} {
		found, err := g.kube.AppsV1().Deployments(system).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			*into = found
		}
		if err := g.outcome(partWorkloads, right, err); err != nil {
			return err
		}
	}
	found, err := g.kube.AppsV1().DaemonSets(system).Get(ctx, agentName, metav1.GetOptions{})
	if err == nil {
		g.Agents = found
	}
	return g.outcome(partWorkloads, right, err)
}

func (g *gatherer) agentPods(ctx context.Context) error {
	of := metav1.ListOptions{LabelSelector: nameLabel + "=" + agentName}
	return g.outcome(partPods, "list on pods in namespace "+system, pages(ctx, g.kube.CoreV1().Pods(system).List, of,
		func(l *corev1.PodList) {
			for i := range l.Items {
				reported.Pod(&l.Items[i])
			}
			g.AgentPods = append(g.AgentPods, l.Items...)
		}))
}

func (g *gatherer) nodes(ctx context.Context) error {
	return g.outcome(partNodes, "list on nodes (cluster-wide)", pages(ctx, g.kube.CoreV1().Nodes().List, metav1.ListOptions{},
		func(l *corev1.NodeList) { g.Nodes = append(g.Nodes, l.Items...) }))
}
