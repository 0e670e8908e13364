// SPDX-License-Identifier: Apache-2.0

// Package cluster reads what the commands show. It leaves out what the user may not read, and notes
// the right that would show it.
package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// page is how many objects are asked for at once.
const page = 500

// Client is a connection to the user's cluster.
type Client struct {
	// Core reads nodes and pods.
	Core corev1client.CoreV1Interface
	// Modules is the REST client of Modules' API group, Preflights of its newer version, Made of
	// Drover's own group, and Hub of hubs' group.
	Modules, Preflights, Made, Hub rest.Interface
	// Namespace of the command line, of the kubeconfig's context, or "default".
	Namespace string
}

// Connect finds the cluster and the namespace. It sends nothing.
func Connect(flags *genericclioptions.ConfigFlags) (*Client, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	// A person waits: only the API server's fairness limits us.
	config.QPS = -1
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta1.AddToScheme(scheme), v1beta2.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		hubv1beta1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register the API: %w", err)
	}
	c := &Client{Core: core, Namespace: namespace}
	for group, to := range map[schema.GroupVersion]*rest.Interface{
		v1beta1.GroupVersion: &c.Modules, v1beta2.GroupVersion: &c.Preflights, v1alpha1.GroupVersion: &c.Made,
		hubv1beta1.GroupVersion: &c.Hub,
	} {
		own := rest.CopyConfig(config)
		own.APIPath, own.GroupVersion = "/apis", &group
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		own.ContentType = runtime.ContentTypeJSON
		if *to, err = rest.RESTClientFor(own); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	return c, nil
}

// Module reads one Module.
func (c *Client) Module(ctx context.Context, name string) (*v1beta1.Module, error) {
	m := &v1beta1.Module{}
	err := c.Modules.Get().Namespace(c.Namespace).Resource("modules").Name(name).Do(ctx).Into(m)
	switch {
	case unknownKind(err):
		return nil, errUnknownKind
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w %s in namespace %s; `drover status -A` lists all Modules", ErrNotFound, name, c.Namespace)
	case err != nil:
		return nil, fmt.Errorf("get Module %s in namespace %s: %w", name, c.Namespace, err)
	}
	c.complete(ctx, m)
	return m, nil
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

// ListModules reads the Modules of a namespace with a label selector; "" is all namespaces.
func (c *Client) ListModules(ctx context.Context, namespace, selector string) ([]v1beta1.Module, error) {
	list, err := pages(func(o metav1.ListOptions) ([]v1beta1.Module, string, error) {
		o.LabelSelector = selector
		var l v1beta1.ModuleList
		err := c.Modules.Get().Namespace(namespace).Resource("modules").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
		return l.Items, l.Continue, err //nolint:wrapcheck // wrapped below, for all kinds
	})
	switch {
	case unknownKind(err):
		return nil, errUnknownKind
	case err != nil && namespace == "":
		return nil, fmt.Errorf("list Modules in all namespaces: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list Modules in namespace %s: %w", namespace, err)
	}
	all := make([]*v1beta1.Module, 0, len(list))
	for i := range list {
		all = append(all, &list[i])
	}
	c.complete(ctx, all...)
	return list, nil
}

// Nodes reads all nodes.
func (c *Client) Nodes(ctx context.Context) ([]corev1.Node, error) { return c.nodes(ctx, "") }

func (c *Client) nodes(ctx context.Context, name string) ([]corev1.Node, error) {
	if name != "" {
		node, err := c.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no node %s in this cluster", name)
		}
		if err != nil {
			return nil, fmt.Errorf("get Node %s: %w", name, err)
		}
		return []corev1.Node{*node}, nil
	}
	all, err := pages(func(o metav1.ListOptions) ([]corev1.Node, string, error) {
		l, err := c.Core.Nodes().List(ctx, o)
		if err != nil {
			return nil, "", err //nolint:wrapcheck // wrapped below
		}
		return l.Items, l.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return all, nil
}

func (c *Client) configs(ctx context.Context) (map[string]*v1beta1.NodeModulesConfig, error) {
	all, err := pages(func(o metav1.ListOptions) ([]v1beta1.NodeModulesConfig, string, error) {
		var l v1beta1.NodeModulesConfigList
		err := c.Modules.Get().Resource("nodemodulesconfigs").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
		return l.Items, l.Continue, err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("list NodeModulesConfigs: %w", err)
	}
	byName := make(map[string]*v1beta1.NodeModulesConfig, len(all))
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	return byName, nil
}

// images reads the images that are made in the cluster for a Module; "": for all of the namespace.
// A cluster without ModuleImages has none.
func (c *Client) images(ctx context.Context, namespace, module string) ([]v1alpha1.ModuleImage, error) {
	all, err := pages(func(o metav1.ListOptions) ([]v1alpha1.ModuleImage, string, error) {
		o.LabelSelector = selectorOf(module)
		var l v1alpha1.ModuleImageList
		err := c.Made.Get().Namespace(namespace).Resource("moduleimages").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
		return l.Items, l.Continue, err //nolint:wrapcheck // wrapped below
	})
	switch {
	case unknownKind(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ModuleImages in namespace %s: %w", namespace, err)
	}
	return all, nil
}

// pods reads the pods that were made for a Module; "": for all of the namespace.
func (c *Client) pods(ctx context.Context, namespace, module string) ([]corev1.Pod, error) {
	all, err := pages(func(o metav1.ListOptions) ([]corev1.Pod, string, error) {
		o.LabelSelector = selectorOf(module)
		l, err := c.Core.Pods(namespace).List(ctx, o)
		if err != nil {
			return nil, "", err //nolint:wrapcheck // wrapped below
		}
		return l.Items, l.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods in namespace %s: %w", namespace, err)
	}
	return all, nil
}

func selectorOf(module string) string {
	if module == "" {
		return v1beta1.ModuleNameLabel
	}
	return v1beta1.ModuleNameLabel + "=" + module
}

func pages[T any](read func(metav1.ListOptions) ([]T, string, error)) ([]T, error) {
	var all []T
	for o := (metav1.ListOptions{Limit: page}); ; {
		list, next, err := read(o)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if next == "" {
			return all, nil
		}
		o.Continue = next
	}
}
