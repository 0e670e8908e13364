// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/kubelet/client"
	admissionregistration "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apps "k8s.io/kubernetes/pkg/registry/apps/rest"
	batch "k8s.io/kubernetes/pkg/registry/batch/rest"
	coordination "k8s.io/kubernetes/pkg/registry/coordination/rest"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	volumestore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	claimstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	core "k8s.io/kubernetes/pkg/registry/core/rest"
	events "k8s.io/kubernetes/pkg/registry/events/rest"
	node "k8s.io/kubernetes/pkg/registry/node/rest"
	policy "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resource "k8s.io/kubernetes/pkg/registry/resource/rest"
	scheduling "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storageregistry "k8s.io/kubernetes/pkg/registry/storage/rest"
)

// eventTTL is a kube-apiserver's --event-ttl, by default.
const eventTTL = 60 * 60 * 1e9

// install adds the kinds that are compiled in, of the versions that are on by default.
func (b *builder) install(s *genericapiserver.GenericAPIServer) error {
	legacy, err := b.core()
	if err != nil {
		return err
	}
	if err := s.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &legacy); err != nil {
		return err
	}
	all := b.config.Authorization.Authorizer
	for _, group := range []apiserver.RESTStorageProvider{
		batch.RESTStorageProvider{}, coordination.RESTStorageProvider{}, node.RESTStorageProvider{}, policy.RESTStorageProvider{},
		rbac.RESTStorageProvider{Authorizer: all}, scheduling.RESTStorageProvider{}, storageregistry.RESTStorageProvider{},
		apps.StorageProvider{}, events.RESTStorageProvider{TTL: eventTTL},
		admissionregistration.RESTStorageProvider{Authorizer: all, DiscoveryClient: b.client.Discovery()},
		resource.RESTStorageProvider{NamespaceClient: b.client.CoreV1().Namespaces(), Authorizer: all},
	} {
		info, err := group.NewRESTStorage(b.config.MergedResourceConfig, b.config.RESTOptionsGetter)
		if err != nil {
			return fmt.Errorf("group %q: %w", group.GroupName(), err)
		}
		if err := s.InstallAPIGroup(&info); err != nil {
			return fmt.Errorf("group %q: %w", group.GroupName(), err)
		}
		// Roles of a new cluster are for authorization, which is not here.
		if hooks, ok := group.(genericapiserver.PostStartHookProvider); ok && group.GroupName() != "rbac.authorization.k8s.io" {
			name, hook, err := hooks.PostStartHook()
			if err != nil {
				return err
			}
			s.AddPostStartHookOrDie(name, hook)
		}
	}
	return nil
}

// core is the group without a name. Services are not in it: their addresses are given by an
// allocator that is not here.
func (b *builder) core() (genericapiserver.APIGroupInfo, error) {
	getter := b.config.RESTOptionsGetter
	info, err := (&core.GenericConfig{StorageFactory: b.storage, EventTTL: eventTTL, LoopbackClientConfig: b.loopback,
		Informers: b.informers}).NewRESTStorage(b.config.MergedResourceConfig, getter)
	if err != nil {
		return info, err
	}
	nodes, err := nodestore.NewStorage(getter, client.KubeletClientConfig{}, nil)
	if err != nil {
		return info, err
	}
	disruptions, err := policyclient.NewForConfig(b.loopback)
	if err != nil {
		return info, err
	}
	pods, err := podstore.NewStorage(getter, nodes.KubeletConnectionInfo, nil, disruptions, b.config.Authorization.Authorizer)
	if err != nil {
		return info, err
	}
	limits, err := limitrangestore.NewREST(getter)
	if err != nil {
		return info, err
	}
	volumes, volumesStatus, err := volumestore.NewREST(getter)
	if err != nil {
		return info, err
	}
	claims, claimsStatus, err := claimstore.NewREST(getter)
	if err != nil {
		return info, err
	}
	kinds := info.VersionedResourcesStorageMap["v1"]
	kinds["limitranges"] = limits
	kinds["persistentvolumes"], kinds["persistentvolumes/status"] = volumes, volumesStatus
	kinds["persistentvolumeclaims"], kinds["persistentvolumeclaims/status"] = claims, claimsStatus
	kinds["nodes"], kinds["nodes/status"] = nodes.Node, nodes.Status
	kinds["pods"], kinds["pods/status"], kinds["pods/binding"], kinds["pods/eviction"] = pods.Pod, pods.Status, pods.Binding, pods.Eviction
	kinds["pods/ephemeralcontainers"], kinds["pods/resize"] = pods.EphemeralContainers, pods.Resize
	return info, nil
}

// first makes what a kube-apiserver makes itself, and waits until requests are answered.
func (b *builder) first() error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := within(b.ctx, "namespace "+name, func() (bool, error) {
			_, err := b.client.CoreV1().Namespaces().Create(b.ctx, space, metav1.CreateOptions{})
			if status := apierrors.APIStatus(nil); errors.As(err, &status) && apierrors.IsForbidden(err) {
				return false, nil // admission is not ready
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return within(b.ctx, "priority classes", func() (bool, error) {
		list, err := b.client.SchedulingV1().PriorityClasses().List(b.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 2, err
	})
}
