// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/drover-project/drover/test/sim/memetcd"
)

// Admin is a user of the group system:masters, as a cluster's first kubeconfig has.
func Admin() user.Info {
	return &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
}

// Config is a client's configuration, as a user. No token is needed.
func (s *Server) Config(who user.Info) *rest.Config {
	return &rest.Config{Host: Host, Transport: s.As(who), QPS: -1}
}

// Prefix is the beginning of the keys in etcd of a resource's objects. What follows is the name, or
// the namespace, a slash and the name.
func (s *Server) Prefix(resource schema.GroupResource) string {
	if legacyscheme.Scheme.IsGroupRegistered(resource.Group) {
		return path.Join(prefix, s.native.ResourcePrefix(resource)) + "/"
	}
	return path.Join(prefix, resource.Group, resource.Resource) + "/"
}

// Etcd is where the server keeps its objects, as JSON of the version that is stored.
func (s *Server) Etcd() *memetcd.Store { return s.etcd }

// Install creates objects as the administrator. It returns when the custom resources whose
// definitions are among them are served.
func (s *Server) Install(ctx context.Context, objects ...*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfigAndClient(s.Config(Admin()), &http.Client{Transport: s.As(Admin())})
	if err != nil {
		return err
	}
	for _, o := range objects {
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		kind := client.Resource(resource)
		name := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
		if o.GetNamespace() == "" {
			_, err = kind.Create(ctx, o, metav1.CreateOptions{})
		} else {
			_, err = kind.Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			if err := served(ctx, client, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// served waits until a definition's custom resources are served, and until the server's controllers
// have written all that they write about it.
func served(ctx context.Context, client dynamic.Interface, o *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)["name"].(string)
		resource := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
		if err := within(ctx, "custom resource "+resource.String(), func() (bool, error) {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	if !apihelpers.IsProtectedCommunityGroup(group) {
		return nil
	}
	definitions, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return within(ctx, "approval of "+o.GetName(), func() (bool, error) {
		now, err := client.Resource(definitions).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			return condition["type"] == string(apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
		}), err
	})
}
