// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/shared/hostname"
)

// KMM's names. Those of its Deployments and webhook configurations depend on how it was installed.
const (
	// peerLease is the Lease that KMM's operator holds, in whatever namespace it runs.
	peerLease = "kmm.sigs.x-k8s.io"
	// podFinalizer is on the pods of KMM's DaemonSets.
	podFinalizer = "kmm.node.kubernetes.io/node-labeler"
	// workerFinalizer is on the pods that load and unload.
	workerFinalizer = "kmm.node.kubernetes.io/nodemodulesconfig-reconciler"
	// targetSuffix ends the labels of nodes on which a device plugin may run.
	targetSuffix = ".device-plugin-target"
	nodePrefix   = "kmm.node.kubernetes.io/"
	// replicasAnnotation on a Deployment notes how many pods it wanted before --apply.
	replicasAnnotation = "drover.dev/migrate-replicas"

	releaseAnnotation, releaseNamespaceAnnotation = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

	partOf, ours = "app.kubernetes.io/part-of", "drover"
	// olmName begins the names of KMM's package and of its ClusterServiceVersions.
	olmName = "kernel-module-management"
)

// The roles of KMM's Deployments.
const roleOperator, roleWebhook = "operator", "webhooks"

// Found is what the cluster has of KMM.
type Found struct {
	OLM         []Managed
	Deployments []Deployment
	Leases      []Lease
	Working     []string // pods that load or unload now
	Ended       []string // such pods that have ended, and that KMM has not collected
	Webhooks    []Webhook
	Definitions []Definition
	Releases    []Release

	Modules           int
	Building, Toolkit []string // of Modules
	Configs, Loaded   int      // NodeModulesConfigs, and what they report as loaded
	DaemonSets        int
	Finalized         int // pods
	Targets           int // nodes
	Classes           int
	Preflights        int
	Unread            []string // why PreflightValidations cannot be read
}

// Managed is an object of OLM.
type Managed struct{ Kind, Namespace, Name string }

func (m Managed) String() string { return m.Kind + " " + m.Namespace + "/" + m.Name }

// Deployment is one of KMM's.
type Deployment struct {
	Role, Namespace, Name string
	Replicas              int32
	Pods                  int
	Release               string // Helm's, namespace/name
	Selector              string
	Noted                 string // how many replicas it had when --apply stopped it
}

// Lease is one that KMM's operators hold. Pod is the holder, if it is there and has not ended.
type Lease struct{ Namespace, Pod string }

// Webhook is a webhook configuration of KMM.
type Webhook struct {
	Kind, Name string
	Server     string // the Service, namespace/name
	Served     bool
}

// look reads everything.
func (a *api) look(ctx context.Context) (*Found, error) {
	f := &Found{}
	for _, step := range []func(context.Context, *Found) error{
		a.lookOLM, a.lookDeployments, a.lookLeases, a.lookPods, a.lookWebhooks, a.lookDefinitions, a.lookModules, a.lookNodes,
		a.lookPreflights,
	} {
		if err := step(ctx, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (a *api) lookOLM(ctx context.Context, f *Found) error {
	subscribed, err := a.list(ctx, subscriptions, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range subscribed {
		// Errors: what is no string is not KMM's name.
		if name, _, _ := unstructured.NestedString(s.Object, "spec", "name"); strings.HasPrefix(name, olmName) {
			f.OLM = append(f.OLM, Managed{Kind: "subscriptions.operators.coreos.com", Namespace: s.GetNamespace(), Name: s.GetName()})
		}
	}
	installed, err := a.list(ctx, serviceVersions, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range installed {
		// OLM copies it into every namespace.
		if strings.HasPrefix(v.GetName(), olmName) && v.GetLabels()["olm.copiedFrom"] == "" {
			f.OLM = append(f.OLM, Managed{Kind: "clusterserviceversions.operators.coreos.com", Namespace: v.GetNamespace(), Name: v.GetName()})
		}
	}
	return nil
}

func (a *api) lookDeployments(ctx context.Context, f *Found) error {
	all, err := a.list(ctx, deployments, metav1.ListOptions{})
	if err != nil {
		return err
	}
	typed, err := each[appsv1.Deployment](all)
	if err != nil {
		return err
	}
	for _, d := range typed {
		role := roleOf(d)
		if role == "" {
			continue
		}
		one := Deployment{
			Role: role, Namespace: d.Namespace, Name: d.Name, Replicas: ptr.Deref(d.Spec.Replicas, 1), Release: releaseOf(d),
			Selector: metav1.FormatLabelSelector(d.Spec.Selector), Noted: d.Annotations[replicasAnnotation],
		}
		running, err := a.running(ctx, one)
		if err != nil {
			return err
		}
		one.Pods = len(running)
		f.Deployments = append(f.Deployments, one)
	}
	// The operator stops before its webhooks do.
	slices.SortStableFunc(f.Deployments, func(a, b Deployment) int { return strings.Compare(a.Role, b.Role) })
	return nil
}

// running are the pods of a Deployment that have not ended.
func (a *api) running(ctx context.Context, d Deployment) ([]string, error) {
	found, err := a.listIn(ctx, pods, d.Namespace, metav1.ListOptions{LabelSelector: d.Selector})
	if err != nil {
		return nil, err
	}
	typed, err := each[corev1.Pod](found)
	var running []string
	for _, p := range typed {
		if !ended(p) {
			running = append(running, p.Name)
		}
	}
	return running, err
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// roleOf tells KMM's Deployments by what its programs require: images of its workers in the
// environment, flags that enable webhooks.
func roleOf(d *appsv1.Deployment) string {
	if d.Labels[partOf] == ours {
		return ""
	}
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "RELATED_IMAGE_WORKER" }) {
			return roleOperator
		}
		if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--enable-module") }) {
			return roleWebhook
		}
	}
	return ""
}

func releaseOf(object metav1.Object) string {
	name := object.GetAnnotations()[releaseAnnotation]
	if name == "" {
		return ""
	}
	return object.GetAnnotations()[releaseNamespaceAnnotation] + "/" + name
}

func (a *api) lookLeases(ctx context.Context, f *Found) error {
	all, err := a.list(ctx, leases, metav1.ListOptions{FieldSelector: "metadata.name=" + peerLease})
	if err != nil {
		return err
	}
	typed, err := each[coordinationv1.Lease](all)
	if err != nil {
		return err
	}
	for _, l := range typed {
		pod, err := a.holder(ctx, l)
		if err != nil {
			return err
		}
		f.Leases = append(f.Leases, Lease{Namespace: l.Namespace, Pod: pod})
	}
	return nil
}

// holder is the pod that a Lease names by HOSTNAME_UUID, unless it has ended or is Drover's.
func (a *api) holder(ctx context.Context, l *coordinationv1.Lease) (string, error) {
	identity := ptr.Deref(l.Spec.HolderIdentity, "")
	cut := strings.LastIndex(identity, "_")
	if cut <= 0 {
		return "", nil
	}
	found, err := a.listIn(ctx, pods, l.Namespace, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	typed, err := each[corev1.Pod](found)
	for _, p := range typed {
		if hostname.Of(p.Name) == identity[:cut] && !ended(p) && p.Labels[partOf] != ours {
			return p.Name, err
		}
	}
	return "", err
}

// lookPods is about what KMM runs for Modules.
func (a *api) lookPods(ctx context.Context, f *Found) error {
	sets, err := a.list(ctx, daemonSets, metav1.ListOptions{LabelSelector: nodePrefix + "role," + nodePrefix + "module.name"})
	if err != nil {
		return err
	}
	f.DaemonSets = len(sets)
	all, err := a.list(ctx, pods, metav1.ListOptions{LabelSelector: nodePrefix + "module.name"})
	if err != nil {
		return err
	}
	typed, err := each[corev1.Pod](all)
	for _, p := range typed {
		switch {
		case slices.Contains(p.Finalizers, podFinalizer):
			f.Finalized++
		case !slices.Contains(p.Finalizers, workerFinalizer):
		case ended(p):
			f.Ended = append(f.Ended, p.Namespace+"/"+p.Name)
		default:
			f.Working = append(f.Working, p.Namespace+"/"+p.Name)
		}
	}
	return err
}

func (a *api) lookWebhooks(ctx context.Context, f *Found) error {
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		all, err := a.list(ctx, webhookKinds[kind], metav1.ListOptions{})
		if err != nil {
			return err
		}
		typed, err := each[hooks](all)
		if err != nil {
			return err
		}
		for _, h := range typed {
			server := h.server()
			if server == nil {
				continue
			}
			served, err := a.served(ctx, server)
			if err != nil {
				return err
			}
			f.Webhooks = append(f.Webhooks, Webhook{Kind: kind, Name: h.Name, Server: server.Namespace + "/" + server.Name, Served: served})
		}
	}
	return nil
}

// hooks is what both kinds of webhook configurations have.
type hooks struct {
	metav1.ObjectMeta `json:"metadata"`
	Webhooks          []struct {
		Name         string                          `json:"name"`
		ClientConfig admissionv1.WebhookClientConfig `json:"clientConfig"`
	} `json:"webhooks"`
}

// server is the Service of KMM's webhooks; nil: these are not KMM's. The names of its webhooks, and
// their paths, are in its programs; others may have rules for Modules, too.
func (h *hooks) server() *admissionv1.ServiceReference {
	for _, w := range h.Webhooks {
		service := w.ClientConfig.Service
		if service == nil {
			continue
		}
		path := ptr.Deref(service.Path, "")
		if strings.HasSuffix(w.Name, ".kmm.sigs.k8s.io") || strings.HasPrefix(path, "/validate-kmm-sigs-x-k8s-io-") ||
			strings.HasPrefix(path, "/mutate-kmm-sigs-x-k8s-io-") {
			return service
		}
	}
	return nil
}

// served reports whether a Service has an endpoint that is ready.
func (a *api) served(ctx context.Context, s *admissionv1.ServiceReference) (bool, error) {
	found, err := a.listIn(ctx, endpointSlices, s.Namespace, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return false, err
	}
	typed, err := each[discoveryv1.EndpointSlice](found)
	for _, slice := range typed {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return true, nil
			}
		}
	}
	return false, err
}

func (a *api) lookNodes(ctx context.Context, f *Found) error {
	all, err := a.list(ctx, nodes, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all {
		for label := range all[i].GetLabels() {
			if strings.HasPrefix(label, nodePrefix) && strings.HasSuffix(label, targetSuffix) {
				f.Targets++
				break
			}
		}
	}
	classes, err := a.list(ctx, deviceClasses, metav1.ListOptions{LabelSelector: nodePrefix + "module.name"})
	f.Classes = len(classes)
	return err
}

// lookPreflights reads both versions: where nobody serves the conversion webhook, one fails.
func (a *api) lookPreflights(ctx context.Context, f *Found) error {
	all, err := a.list(ctx, preflights, metav1.ListOptions{})
	f.Preflights = len(all)
	_, second := a.list(ctx, preflightsV1Beta1, metav1.ListOptions{})
	for version, err := range map[string]error{preflights.Version: err, preflightsV1Beta1.Version: second} {
		if err != nil && strings.Contains(err.Error(), "conversion webhook") {
			f.Unread = append(f.Unread, version)
		} else if err != nil {
			return fmt.Errorf("in version %s: %w", version, err)
		}
	}
	slices.Sort(f.Unread)
	return nil
}
