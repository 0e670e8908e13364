// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// page is how many objects are asked for at once.
const page = 500

// What is looked at. KMM's kinds need not be served.
var (
	deployments       = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	daemonSets        = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	leases            = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	pods              = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes             = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	secrets           = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps        = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces        = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	endpointSlices    = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	definitions       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	deviceClasses     = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}
	subscriptions     = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1alpha1", Resource: "subscriptions"}
	serviceVersions   = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1alpha1", Resource: "clusterserviceversions"}
	validating        = admission("validatingwebhookconfigurations")
	mutating          = admission("mutatingwebhookconfigurations")
	modules           = v1beta1.GroupVersion.WithResource("modules")
	nodeModules       = v1beta1.GroupVersion.WithResource("nodemodulesconfigs")
	preflights        = v1beta2.GroupVersion.WithResource("preflightvalidations")
	preflightsV1Beta1 = v1beta1.GroupVersion.WithResource("preflightvalidations")
)

func admission(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// webhookKinds are the kinds of webhook configurations.
var webhookKinds = map[string]schema.GroupVersionResource{
	"ValidatingWebhookConfiguration": validating, "MutatingWebhookConfiguration": mutating,
}

// api is the cluster, read and written without types: parts of it may not be served.
type api struct{ client dynamic.Interface }

func connect(config *rest.Config) (*api, error) {
	config.WarningHandler = rest.NoWarnings{} // of versions that are looked at because they are old
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &api{client: client}, nil
}

// list reads all objects of a kind in all namespaces; none where the kind is not served.
func (a *api) list(ctx context.Context, kind schema.GroupVersionResource, o metav1.ListOptions) ([]unstructured.Unstructured, error) {
	return a.listIn(ctx, kind, metav1.NamespaceAll, o)
}

func (a *api) listIn(ctx context.Context, kind schema.GroupVersionResource, namespace string, o metav1.ListOptions) (
	found []unstructured.Unstructured, err error) {
	for o.Limit = page; ; {
		list, err := a.client.Resource(kind).Namespace(namespace).List(ctx, o)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		found = append(found, list.Items...)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return found, nil
		}
	}
}

// get reads an object; nil: there is none.
func (a *api) get(ctx context.Context, kind schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	object, err := a.client.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", kind.Resource, name, err)
	}
	return object, nil
}

// update writes an object as it was read and changed. The API server refuses it if somebody else
// has written meanwhile.
func (a *api) update(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured) error {
	_, err := a.client.Resource(kind).Namespace(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("update %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// create makes an object, unless one of that name is there.
func (a *api) create(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured) (made bool, err error) {
	_, err = a.client.Resource(kind).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return true, nil
}

// remove deletes what was read, and nothing that took its place.
func (a *api) remove(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured) error {
	uid := object.GetUID()
	err := a.client.Resource(kind).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// patch merges into an object.
func (a *api) patch(ctx context.Context, kind schema.GroupVersionResource, namespace, name, merge string) error {
	_, err := a.client.Resource(kind).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(merge),
		metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", kind.Resource, name, err)
	}
	return nil
}

// as reads an object into its type.
func as[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return typed, nil
}

// each reads objects into their type.
func each[T any](objects []unstructured.Unstructured) (typed []*T, err error) {
	for i := range objects {
		one, oneErr := as[T](&objects[i])
		if oneErr != nil {
			err = errors.Join(err, oneErr)
			continue
		}
		typed = append(typed, one)
	}
	return typed, err
}
