// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-project/drover/internal/shared/version"
)

const (
	agentNamespace = "drover-system"
	agentAccount   = "drover-agent"
	leaseNamespace = corev1.NamespaceNodeLease

	// tokenSeconds is how long an agent's token lasts; a new one is asked for well before.
	tokenSeconds = int64(12 * 60 * 60)
)

// api is what kubelets say to the API server, and no more. The usual clientset is not used: it
// would make every agent's process larger, for a part that runs in tests and demos only.
type api struct {
	core, coordination rest.Interface
	parameters         runtime.ParameterCodec
	outage             outage
	// release of the API server, which the kubelets are of, too: none is ever newer.
	release string
}

func newAPI(config *rest.Config) (*api, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	err := errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("make a scheme: %w", err)
	}
	c := rest.CopyConfig(config)
	c.UserAgent = version.UserAgent("hollow-kubelet")
	c.QPS = -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	a := &api{parameters: runtime.NewParameterCodec(scheme)}
	core := rest.CopyConfig(c)
	core.GroupVersion, core.APIPath = &corev1.SchemeGroupVersion, "/api"
	if a.core, err = rest.RESTClientFor(core); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	c.GroupVersion, c.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	if a.coordination, err = rest.RESTClientFor(c); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return a, nil
}

// ensureAccount makes the namespace and the account of the agents where they are missing.
func (a *api) ensureAccount(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}
	if err := ensure(ctx, a.core, "", "namespaces", namespace); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: agentAccount, Namespace: agentNamespace}}
	return ensure(ctx, a.core, agentNamespace, "serviceaccounts", account)
}

// learnRelease asks the API server for its release.
func (a *api) learnRelease(ctx context.Context) error {
	answer, err := a.core.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("ask for the API server's release: %w", err)
	}
	var info apiversion.Info
	if err := json.Unmarshal(answer, &info); err != nil {
		return fmt.Errorf("read the API server's release: %w", err)
	}
	a.release = info.GitVersion
	return nil
}

// object is what ensure creates.
type object interface {
	runtime.Object
	GetName() string
}

func ensure(ctx context.Context, c rest.Interface, namespace, resource string, o object) error {
	err := c.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(o.GetName()).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		err = c.Post().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Body(o).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ensure %s %s: %w", resource, o.GetName(), err)
	}
	return nil
}

func (a *api) createNode(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	var created corev1.Node
	if err := a.core.Post().Resource("nodes").Body(n).Do(ctx).Into(&created); err != nil {
		return nil, fmt.Errorf("create node %s: %w", n.Name, err)
	}
	return &created, nil
}

// getNode reads a Node from the API server's cache.
func (a *api) getNode(ctx context.Context, name string) (*corev1.Node, error) {
	var n corev1.Node
	err := a.core.Get().Resource("nodes").Name(name).VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, a.parameters).Do(ctx).Into(&n)
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return &n, nil
}

// patchNode writes a strategic merge patch; subresource is "" or "status".
func (a *api) patchNode(ctx context.Context, name, subresource string, patch any) (*corev1.Node, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", name, err)
	}
	var patched corev1.Node
	request := a.core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	if err := request.Body(data).Do(ctx).Into(&patched); err != nil {
		return nil, fmt.Errorf("patch node %s: %w", name, err)
	}
	return &patched, nil
}

func (a *api) renewLease(ctx context.Context, name string, now metav1.MicroTime) error {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", name, err)
	}
	err = a.coordination.Patch(types.MergePatchType).Namespace(leaseNamespace).Resource("leases").Name(name).Body(data).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", name, err)
	}
	return nil
}

func (a *api) createLease(ctx context.Context, l *coordinationv1.Lease) error {
	if err := a.coordination.Post().Namespace(leaseNamespace).Resource("leases").Body(l).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create lease %s: %w", l.Name, err)
	}
	return nil
}

// agentToken asks for a token of the agents' account that is bound to a node.
func (a *api) agentToken(ctx context.Context, node string, uid types.UID) (*authenticationv1.TokenRequestStatus, error) {
	seconds := tokenSeconds
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid},
	}}
	var answer authenticationv1.TokenRequest
	err := a.core.Post().Namespace(agentNamespace).Resource("serviceaccounts").Name(agentAccount).SubResource("token").
		Body(request).Do(ctx).Into(&answer)
	if err != nil {
		return nil, fmt.Errorf("ask for the agent's token on node %s: %w", node, err)
	}
	return &answer.Status, nil
}

// watchPods lists and watches all pods with a label.
func (a *api) watchPods(label string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(a.core, "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = label })
}

// podsOf reads a node's pods from the API server's cache.
func (a *api) podsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	options := &metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, ResourceVersion: "0"}
	if err := a.core.Get().Resource("pods").VersionedParams(options, a.parameters).Do(ctx).Into(&pods); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}

// patchPodStatus writes a pod's status. The UID keeps it from reaching a successor of the same
// name.
func (a *api) patchPodStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err = a.core.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
		Body(data).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// finalisePod removes a pod that is terminating.
func (a *api) finalisePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	err := a.core.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
