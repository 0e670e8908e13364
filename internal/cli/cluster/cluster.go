// SPDX-License-Identifier: Apache-2.0

// Package cluster reads what the commands show. It leaves out what the user may not read, and notes
// the right that would show it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/gentype"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/reported"
)

// page is how many objects are asked for at once.
const page = 500

// Client is a connection to the user's cluster.
type Client struct {
	// Namespace of the command line, of the kubeconfig's context, or "default".
	Namespace string

	core corev1client.CoreV1Interface
	own  map[schema.GroupVersion]rest.Interface
}

// Config finds the cluster and the namespace. It sends nothing.
func Config(flags *genericclioptions.ConfigFlags) (config *rest.Config, namespace string, err error) {
	if namespace, _, err = flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, "", fmt.Errorf("find the namespace: %w", err)
	}
	if config, err = flags.ToRESTConfig(); err != nil {
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	// A person waits: only the API server's fairness limits us.
	config.QPS = -1
	return config, namespace, nil
}

// Connect makes a client. It sends nothing.
func Connect(flags *genericclioptions.ConfigFlags) (*Client, error) {
	config, namespace, err := Config(flags)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &Client{Namespace: namespace, core: core, own: map[schema.GroupVersion]rest.Interface{}}
	for group, add := range map[schema.GroupVersion]func(*runtime.Scheme) error{
		v1beta1.GroupVersion: v1beta1.AddToScheme, v1beta2.GroupVersion: v1beta2.AddToScheme,
		v1alpha1.GroupVersion: v1alpha1.AddToScheme, hubv1beta1.GroupVersion: hubv1beta1.AddToScheme,
	} {
		scheme := runtime.NewScheme()
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API: %w", err)
		}
		own := rest.CopyConfig(config)
		own.APIPath, own.GroupVersion = "/apis", &group
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		own.ContentType = runtime.ContentTypeJSON
		if c.own[group], err = rest.RESTClientFor(own); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	return c, nil
}

type object interface {
	runtime.Object
	metav1.Object
}

type objects interface {
	runtime.Object
	metav1.ListInterface
}

// of is a client of one kind of our own.
func of[T, L any, O interface {
	*T
	object
}, S interface {
	*L
	objects
}](c *Client, group schema.GroupVersion, resource, namespace string) *gentype.ClientWithList[O, S] {
	return gentype.NewClientWithList(resource, c.own[group], metav1.ParameterCodec, namespace, func() O { return new(T) },
		func() S { return new(L) })
}

func (c *Client) modules(namespace string) *gentype.ClientWithList[*v1beta1.Module, *v1beta1.ModuleList] {
	return of[v1beta1.Module, v1beta1.ModuleList](c, v1beta1.GroupVersion, "modules", namespace)
}

// managed are hubs' ManagedClusterModules.
func (c *Client) managed() *gentype.ClientWithList[*hubv1beta1.ManagedClusterModule, *hubv1beta1.ManagedClusterModuleList] {
	return of[hubv1beta1.ManagedClusterModule, hubv1beta1.ManagedClusterModuleList](c, hubv1beta1.GroupVersion, "managedclustermodules", "")
}

// all reads a list to its end, page by page.
func all[T any, L metav1.ListInterface](ctx context.Context, read func(context.Context, metav1.ListOptions) (L, error), selector string,
	items func(L) []T) ([]T, error) {
	var found []T
	for o := (metav1.ListOptions{LabelSelector: selector, Limit: page}); ; {
		list, err := read(ctx, o)
		if err != nil {
			return nil, err
		}
		found = append(found, items(list)...)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return found, nil
		}
	}
}

// ErrNotFound says that there is no such Module.
var ErrNotFound = errors.New("there is no Module")

var errUnknownKind = errors.New("this cluster does not know Modules (" + v1beta1.GroupVersion.String() + "): install Drover first")

// unknownKind tells a path that the API server does not serve from an object that is not there.
func unknownKind(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Name == "" || len(d.Causes) > 0 && d.Causes[0].Type == metav1.CauseTypeUnexpectedServerResponse
}

// Module reads one Module.
func (c *Client) Module(ctx context.Context, namespace, name string) (*v1beta1.Module, error) {
	m, err := c.modules(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case unknownKind(err):
		return nil, errUnknownKind
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w %s in namespace %s; `drover status -A` lists all Modules", ErrNotFound, name, namespace)
	case err != nil:
		return nil, fmt.Errorf("get Module %s in namespace %s: %w", name, namespace, err)
	}
	c.completion(ctx)(m)
	return m, nil
}

// ListModules reads the Modules of a namespace with a label selector; "" is all namespaces.
func (c *Client) ListModules(ctx context.Context, namespace, selector string) ([]v1beta1.Module, error) {
	list, err := all(ctx, c.modules(namespace).List, selector, func(l *v1beta1.ModuleList) []v1beta1.Module { return l.Items })
	switch {
	case unknownKind(err):
		return nil, errUnknownKind
	case err != nil && namespace == "":
		return nil, fmt.Errorf("list Modules in all namespaces: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list Modules in namespace %s: %w", namespace, err)
	}
	complete := c.completion(ctx)
	for i := range list {
		complete(&list[i])
	}
	return list, nil
}

// Managed reads all ManagedClusterModules; none without a hub, or without the right.
func (c *Client) Managed(ctx context.Context) ([]hubv1beta1.ManagedClusterModule, error) {
	items := func(l *hubv1beta1.ManagedClusterModuleList) []hubv1beta1.ManagedClusterModule { return l.Items }
	list, err := all(ctx, c.managed().List, "", items)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list ManagedClusterModules: %w", err)
	}
	return list, nil
}

// Find reads the Module of a name or, if there is none and hub allows, the ManagedClusterModule.
func (c *Client) Find(ctx context.Context, name string, hub bool) (*v1beta1.Module, *hubv1beta1.ManagedClusterModule, error) {
	m, none := c.Module(ctx, c.Namespace, name)
	if !hub || !errors.Is(none, ErrNotFound) {
		return m, nil, none
	}
	managed, err := c.managed().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil, none
	case err != nil:
		return nil, nil, fmt.Errorf("get ManagedClusterModule %s: %w", name, err)
	}
	return nil, managed, nil
}

// Nodes reads all nodes.
func (c *Client) Nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := all(ctx, c.core.Nodes().List, "", func(l *corev1.NodeList) []corev1.Node { return l.Items })
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range list {
		reported.Node(&list[i])
	}
	return list, nil
}

func (c *Client) node(ctx context.Context, name string) ([]corev1.Node, error) {
	node, err := c.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no node %s in this cluster", name)
	}
	if err != nil {
		return nil, fmt.Errorf("get Node %s: %w", name, err)
	}
	reported.Node(node)
	return []corev1.Node{*node}, nil
}

func (c *Client) configs(ctx context.Context) (map[string]*v1beta1.NodeModulesConfig, error) {
	client := of[v1beta1.NodeModulesConfig, v1beta1.NodeModulesConfigList](c, v1beta1.GroupVersion, "nodemodulesconfigs", "")
	list, err := all(ctx, client.List, "", func(l *v1beta1.NodeModulesConfigList) []v1beta1.NodeModulesConfig { return l.Items })
	if err != nil {
		return nil, fmt.Errorf("list NodeModulesConfigs: %w", err)
	}
	byName := make(map[string]*v1beta1.NodeModulesConfig, len(list))
	for i := range list {
		reported.Clean(&list[i])
		byName[list[i].Name] = &list[i]
	}
	return byName, nil
}

// images reads the images that are made in the cluster. A cluster without ModuleImages has none.
func (c *Client) images(ctx context.Context, namespace, selector string) ([]v1alpha1.ModuleImage, error) {
	client := of[v1alpha1.ModuleImage, v1alpha1.ModuleImageList](c, v1alpha1.GroupVersion, "moduleimages", namespace)
	list, err := all(ctx, client.List, selector, func(l *v1alpha1.ModuleImageList) []v1alpha1.ModuleImage { return l.Items })
	if err != nil && !unknownKind(err) {
		return nil, fmt.Errorf("list ModuleImages in namespace %s: %w", namespace, err)
	}
	return list, nil
}

func (c *Client) pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := all(ctx, c.core.Pods(namespace).List, selector, func(l *corev1.PodList) []corev1.Pod { return l.Items })
	for i := range list {
		reported.Pod(&list[i])
	}
	return list, err
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// completion gives Modules the condition that the operator cannot write: a definition of Modules
// that is not Drover's leaves them without conditions. Users who may not see definitions learn
// nothing.
func (c *Client) completion(ctx context.Context) func(*v1beta1.Module) {
	lacks := sync.OnceValue(func() string { return c.lacks(ctx) })
	return func(m *v1beta1.Module) {
		if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady) != nil || lacks() == "" {
			return
		}
		m.Status.ObservedGeneration = m.Generation
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonCRDIncompatible, ObservedGeneration: m.Generation,
			Message: definition.Problem(definition.Modules + ": " + lacks()),
		})
	}
}

// lacks is what the cluster's definition of Modules lacks; empty: nothing, or it cannot be seen.
func (c *Client) lacks(ctx context.Context) string {
	crd := &unstructured.Unstructured{}
	raw, err := c.core.RESTClient().Get().AbsPath(definitions + definition.Modules).DoRaw(ctx)
	if err != nil || crd.UnmarshalJSON(raw) != nil {
		return ""
	}
	return definition.Misfit(crd)
}

// DryRun asks the API server whether it would take m in place of live, or as new if live is nil,
// and returns what it would store. Errors are the API server's own.
func (c *Client) DryRun(ctx context.Context, live, m *v1beta1.Module) (*v1beta1.Module, error) {
	modules, dry := c.modules(m.Namespace), []string{metav1.DryRunAll}
	if live == nil {
		stored, err := modules.Create(ctx, m, metav1.CreateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict})
		return stored, err //nolint:wrapcheck // the caller tells refusals apart
	}
	next := live.DeepCopy()
	next.Spec = m.Spec
	next.Labels, next.Annotations = labels.Merge(live.Labels, m.Labels), labels.Merge(live.Annotations, m.Annotations)
	stored, err := modules.Update(ctx, next, metav1.UpdateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict})
	return stored, err //nolint:wrapcheck // the caller tells refusals apart
}
