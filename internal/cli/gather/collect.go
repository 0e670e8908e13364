// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/images"
)

const (
	// partOf is on all pods that Drover makes, and on its own.
	partOf = "app.kubernetes.io/part-of=drover"
	// programLabel is on pods of our own programs.
	programLabel = "app.kubernetes.io/name"
	// page is how many objects are asked for at once, most how many of a kind are kept, mostEvents how
	// many events.
	page, most, mostEvents = 500, 20000, 2000
	// logTimeout is how long one log may take.
	logTimeout = 30 * time.Second
)

// groups are those whose kinds are gathered; so are kinds whose definition is part of Drover.
var groups = []string{"kmm.sigs.x-k8s.io", "hub.kmm.sigs.x-k8s.io", "ooto.sigs.k8s.io", "drover.dev"}

// definitions is the kind of definitions.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// query is objects of one kind in one file.
type query struct {
	resource schema.GroupVersionResource
	labels   string
	// keep chooses objects; nil: all.
	keep func(*unstructured.Unstructured) bool
}

// queries are what is gathered besides our own kinds, the most telling first. Secrets,
// ServiceAccounts and other people's ConfigMaps are never asked for.
var queries = []query{
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, labels: partOf},
	{resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, labels: partOf},
	{resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, labels: partOf},
	{resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, labels: partOf},
	{resource: admission("validatingadmissionpolicies"), keep: named("drover-")},
	{resource: admission("validatingadmissionpolicybindings"), keep: named("drover-")},
	{resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, keep: named("drover-", "kmm.")},
}

func admission(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

func named(prefixes ...string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(o.GetName(), p) })
	}
}

// collector reads a cluster into a bundle. What it may not read, it notes.
type collector struct {
	*bundle
	*redactor
	client dynamic.Interface
	// logs reads the last lines of a container's log.
	logs func(ctx context.Context, namespace, pod, container string, previous bool) (io.ReadCloser, error)
	// mostLogs is of how many pods the logs are read, mostBytes how long one may be.
	mostLogs, mostBytes int
	// seen are the objects that are kept, by namespace/name: events about others are not.
	seen map[string]bool
	// troubled are nodes with a failed attempt: their agents' logs come first.
	troubled map[string]bool
	pods     []*unstructured.Unstructured
	modules  []*unstructured.Unstructured
}

// everything reads all there is.
func (c *collector) everything(ctx context.Context) error {
	for _, read := range []func(context.Context) error{c.kinds, c.others, c.events, c.allLogs} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// list reads the objects of a query, and notes what cannot be read.
func (c *collector) list(ctx context.Context, q query, most int) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for o := (metav1.ListOptions{LabelSelector: q.labels, Limit: page}); ; {
		list, err := c.client.Resource(q.resource).List(ctx, o)
		if err != nil {
			c.note("not read: %s: %v", q.resource.GroupResource(), err)
			return found
		}
		for i := range list.Items {
			if q.keep == nil || q.keep(&list.Items[i]) {
				found = append(found, &list.Items[i])
			}
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return found
		}
		if len(found) >= most {
			c.note("not all: %s: the first %d", q.resource.GroupResource(), len(found))
			return found
		}
	}
}

// keep writes objects into a file, without what may be secret.
func (c *collector) keep(name string, objects []*unstructured.Unstructured) error {
	var text strings.Builder
	for _, o := range objects {
		c.seen[o.GetNamespace()+"/"+o.GetName()] = true
		c.object(o, ours(o))
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		text.WriteString("---\n" + string(content))
	}
	if text.Len() > 0 {
		c.add(name, text.String())
	}
	return nil
}

// programs are the names of our own in programLabel, workloads the kinds that run them.
var (
	programs  = images.Workloads()
	workloads = []string{"Pod", "Deployment", "DaemonSet", "Job"}
)

// ours is true for pods and workloads of our own programs, and for carriers. Others may set the
// labels on their objects, and on Modules.
func ours(o *unstructured.Unstructured) bool {
	labels := o.GetLabels()
	_, carrier := labels[v1beta1.CarrierLabel]
	_, ofModule := labels[v1beta1.ModuleNameLabel]
	return slices.Contains(workloads, o.GetKind()) && (carrier || slices.Contains(programs, labels[programLabel]) && !ofModule)
}

// kinds reads our definitions, and all objects of them.
func (c *collector) kinds(ctx context.Context) error {
	mine := func(o *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		return slices.Contains(groups, group) || o.GetLabels()["app.kubernetes.io/part-of"] == "drover"
	}
	found := c.list(ctx, query{resource: definitions, keep: mine}, most)
	for _, d := range found {
		group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			if stored, _ := version["storage"].(bool); !stored || name == "" {
				continue
			}
			objects := c.list(ctx, query{resource: schema.GroupVersionResource{Group: group, Version: name, Resource: plural}}, most)
			c.notice(objects)
			if err := c.keep(path.Join("objects", plural+"."+group+".yaml"), objects); err != nil {
				return err
			}
		}
	}
	return c.keep("definitions.yaml", found)
}

// notice remembers Modules, and which nodes have failed attempts.
func (c *collector) notice(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if isModule(o) {
			c.modules = append(c.modules, o)
		}
		attempts, _, _ := unstructured.NestedSlice(o.Object, "status", "attempts")
		if o.GetKind() == "NodeModulesConfig" && len(attempts) > 0 {
			c.troubled[o.GetName()] = true
		}
	}
}

// others reads what is not of our own kinds.
func (c *collector) others(ctx context.Context) error {
	for _, q := range queries {
		objects := c.list(ctx, q, most)
		if q.resource.Resource == "pods" {
			c.pods = objects
		}
		if err := c.keep(path.Join("objects", q.resource.GroupResource().String()+".yaml"), objects); err != nil {
			return err
		}
	}
	images := query{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, keep: named("drover-images")}
	images.labels = partOf
	return c.keep("objects/configmaps.yaml", c.list(ctx, images, most))
}

// events reads those about what has been seen.
func (c *collector) events(ctx context.Context) error {
	about := func(o *unstructured.Unstructured) bool {
		namespace, _, _ := unstructured.NestedString(o.Object, "regarding", "namespace")
		name, _, _ := unstructured.NestedString(o.Object, "regarding", "name")
		return c.seen[namespace+"/"+name]
	}
	resource := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	return c.keep("events.yaml", c.list(ctx, query{resource: resource, keep: about}, mostEvents))
}

// allLogs reads the logs of our own programs: of operators first, then of agents, those of nodes in
// trouble before others. Logs of builds and of device plugins are not ours to take.
func (c *collector) allLogs(ctx context.Context) error {
	pods := slices.DeleteFunc(slices.Clone(c.pods), func(pod *unstructured.Unstructured) bool {
		_, carrier := pod.GetLabels()[v1beta1.CarrierLabel]
		return !ours(pod) || carrier
	})
	rank := func(pod *unstructured.Unstructured) int {
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		switch {
		case pod.GetLabels()[programLabel] != "drover-agent":
			return 0
		case c.troubled[node]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(pods, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	if len(pods) > c.mostLogs {
		c.note("not all: logs of %d of %d pods (--max-logs)", c.mostLogs, len(pods))
		pods = pods[:c.mostLogs]
	}
	for _, pod := range pods {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
		for _, item := range containers {
			container, _ := item.(map[string]any)
			name, _ := container["name"].(string)
			c.log(ctx, pod, name, false)
			if restarted(pod, name) {
				c.log(ctx, pod, name, true)
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read logs: %w", err)
		}
	}
	return nil
}

func restarted(pod *unstructured.Unstructured, container string) bool {
	statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	return slices.ContainsFunc(statuses, func(s any) bool {
		status, _ := s.(map[string]any)
		count, _ := status["restartCount"].(int64)
		return status["name"] == container && count > 0
	})
}

func (c *collector) log(ctx context.Context, pod *unstructured.Unstructured, container string, previous bool) {
	name := path.Join("logs", pod.GetNamespace(), pod.GetName(), container)
	if previous {
		name += ".previous"
	}
	// A node that does not answer keeps nobody from the other logs.
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	stream, err := c.logs(ctx, pod.GetNamespace(), pod.GetName(), container, previous)
	if err != nil {
		c.note("not read: %s: %v", name, err)
		return
	}
	content, err := io.ReadAll(io.LimitReader(stream, int64(c.mostBytes)))
	if closed := stream.Close(); err == nil {
		err = closed
	}
	if err != nil {
		c.note("not whole: %s: %v", name, err)
	}
	c.add(name+".log", string(content))
}
