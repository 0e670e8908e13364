// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	fieldOwner     = "drover-agent"
	resource       = "nodemodulesconfigs"
	requestTimeout = 15 * time.Second
	// identityTimeout is short: work waits for it that may need no identity.
	identityTimeout = 5 * time.Second
)

// api are the agent's requests: one watch, one kind of write, and the cluster's identity once.
type api struct {
	node string
	kmm  rest.Interface
}

func newAPI(config *rest.Config, node string) (*api, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1beta1.GroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.QPS = -1
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", v1beta1.GroupVersion, err)
	}
	return &api{node: node, kmm: client}, nil
}

// watch keeps l current until ctx ends. It backs off with jitter while the API server is away.
func (a *api) watch(ctx context.Context, l *latest) {
	logger := klog.FromContext(ctx)
	one := cache.NewFilteredListWatchFromClient(a.kmm, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.node).String()
		if options.ResourceVersion == "0" && !options.Watch {
			// Any of several API servers may lag, and an order to unload may be withdrawn by now.
			options.ResourceVersion = ""
		}
	})
	store := cache.NewUndeltaStore(l.set, cache.MetaNamespaceKeyFunc)
	cache.NewReflectorWithOptions(one, &v1beta1.NodeModulesConfig{}, store, cache.ReflectorOptions{
		Logger: &logger, Name: "nodemodulesconfig",
	}).RunWithContext(ctx)
}

// applyStatus makes the status exactly s and returns the object as it then stands. Empty lists are
// in the request, too: a server-side apply would leave what another operator wrote for ever. It
// never creates the object: while there is none, the error is "not found".
func (a *api) applyStatus(ctx context.Context, s *v1beta1.NodeModulesConfigStatus) (*v1beta1.NodeModulesConfig, error) {
	body, err := json.Marshal(statusMerge{Status: wholeStatus{Modules: s.Modules, Attempts: s.Attempts, Artifacts: s.Artifacts}})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1beta1.NodeModulesConfig{}
	err = a.kmm.Patch(types.MergePatchType).Resource(resource).Name(a.node).SubResource("status").
		Param("fieldManager", fieldOwner).Body(body).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("write status: %w", err)
	}
	return out, nil
}

// statusMerge is the JSON merge patch (RFC 7386) of a status.
type statusMerge struct {
	Status wholeStatus `json:"status"`
}

// wholeStatus is the status without omitempty: a list that is empty becomes null, which removes it.
type wholeStatus struct {
	Modules   []v1beta1.NodeModuleStatus  `json:"modules"`
	Attempts  []v1beta1.NodeModuleAttempt `json:"attempts"`
	Artifacts []v1beta1.NodeArtifact      `json:"artifacts"`
}

// clusterUID is the UID of namespace kube-system, which identifies a cluster.
func (a *api) clusterUID(ctx context.Context) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	data, err := a.kmm.Get().AbsPath("/api/v1/namespaces", metav1.NamespaceSystem).Do(ctx).Raw()
	var namespace metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(data, &namespace)
	}
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return namespace.UID, nil
}

// latest is the newest NodeModulesConfig that is known.
type latest struct {
	changed chan struct{}

	mu     sync.Mutex
	listed bool
	object *v1beta1.NodeModulesConfig
}

func newLatest() *latest { return &latest{changed: make(chan struct{}, 1)} }

// get returns the object, not to be changed (nil: none), and whether the API server has answered.
func (l *latest) get() (object *v1beta1.NodeModulesConfig, listed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.object, l.listed
}

// set takes all that the reflector's store has: our object or nothing.
func (l *latest) set(all []any) {
	var object *v1beta1.NodeModulesConfig
	for _, obj := range all {
		if n, ok := obj.(*v1beta1.NodeModulesConfig); ok {
			n.ManagedFields = nil
			object = n
		}
	}
	l.mu.Lock()
	l.object, l.listed = object, true
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
