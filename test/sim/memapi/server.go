// SPDX-License-Identifier: Apache-2.0

// Package memapi is a kube-apiserver in this process's memory: its own registries, handlers,
// admission plugins and custom resources over an etcd in memory, behind an http.RoundTripper.
//
// What it lacks of the real one: authentication and authorization (the caller says who asks),
// audit, priority and fairness, aggregation, and what only other programs add (default service
// accounts, service addresses, what a kubelet answers).
package memapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	etcdclient "go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	endpointsopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/controlplane"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	kubeadmission "k8s.io/kubernetes/pkg/kubeapiserver/admission"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/drover-project/drover/test/sim/memetcd"
)

// Host is the server's name in URLs. No connection is made to it.
const Host = "https://memapi"

// Server is one API server. Its methods may be called at the same time.
type Server struct {
	etcd    *memetcd.Store
	native  *serverstorage.DefaultStorageFactory
	handler http.Handler
	ready   chan struct{} // closed when there is a handler
}

// Options say how a server is to be.
type Options struct {
	// WatchCache has reads that allow it, and watches, answered by a kube-apiserver's watch cache,
	// which lags behind by moments. Without it all are answered by etcd.
	WatchCache bool
	// Now is the time that objects get where the server notes when something happened: a creation, a
	// deletion, a field's last change. It must be before 2020, so that it is not taken for the time of
	// day. Nil is the time of day.
	Now func() time.Time
}

// New starts a server, which ends with ctx. It has the namespaces and priority classes that a new
// cluster has, and no other objects.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{etcd: memetcd.New(), ready: make(chan struct{})}
	b := &builder{ctx: ctx, server: s, o: o, etcd: s.etcd.Client(ctx), loopback: &rest.Config{Host: Host, UserAgent: "kube-apiserver/v1.37",
		Transport: s.As(&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})}}
	if err := b.build(); err != nil {
		return nil, fmt.Errorf("start an API server in memory: %w", err)
	}
	return s, nil
}

// builder holds what several parts of a new server share.
type builder struct {
	ctx       context.Context //nolint:containedctx // it is how long the server lives
	server    *Server
	o         Options
	etcd      *etcdclient.Client
	loopback  *rest.Config
	config    *genericapiserver.Config
	storage   *serverstorage.DefaultStorageFactory
	informers informers.SharedInformerFactory
	client    *kubernetes.Clientset
}

func (b *builder) build() error {
	for _, step := range []func() error{b.generic, b.admission, b.chain} {
		if err := step(); err != nil {
			return err
		}
	}
	return b.first()
}

// generic is what all servers of the chain have in common.
func (b *builder) generic() (err error) {
	c := genericapiserver.NewConfig(legacyscheme.Codecs)
	b.config = c
	c.EffectiveVersion = compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor("kube")
	c.MergedResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	c.LoopbackClientConfig = b.loopback
	c.ExternalAddress = "memapi:443"
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	c.BuildHandlerChainFunc = handlers
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := endpointsopenapi.NewDefinitionNamer(legacyscheme.Scheme, apiextensionsserver.Scheme)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	factory := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(c.EffectiveVersion)
	factory.APIResourceConfig = c.MergedResourceConfig
	if b.storage, err = factory.Complete(etcdOptions()).New(); err != nil {
		return err
	}
	b.server.native = b.storage
	capabilities.Setup(true, 0) // --allow-privileged
	c.RESTOptionsGetter = native{b}
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	if b.o.WatchCache {
		feature.DefaultFeatureSupportChecker.CheckClient(b.ctx, endpoint{}, storage.RequestWatchProgress)
	}
	if b.client, err = kubernetes.NewForConfig(b.loopback); err != nil {
		return err
	}
	b.informers = informers.NewSharedInformerFactory(b.client, 0)
	return nil
}

// admission are the plugins that a kube-apiserver has on by default.
func (b *builder) admission() error {
	first, err := (&kubeadmission.Config{}).New()
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(b.loopback)
	if err != nil {
		return err
	}
	options := kubeoptions.NewAdmissionOptions()
	options.GenericAdmission.EnablePlugins = []string{"NodeRestriction"}
	// A service account's token is of a signer that is not here; quotas are counted by a controller.
	options.GenericAdmission.DisablePlugins = []string{"ServiceAccount", "ResourceQuota",
		// Of a kind that is not here, and what reads schemas that are not published.
		"DefaultIngressClass", "MutatingAdmissionPolicy"}
	return options.ApplyTo(b.config, b.informers, b.client, dynamicClient, utilfeature.DefaultFeatureGate, b.config.EffectiveVersion, first...)
}

// chain are the two servers: what the first does not know, the second may.
func (b *builder) chain() error {
	missing := notfoundhandler.New(legacyscheme.Codecs, func(context.Context) bool { return true })
	c := *b.config
	c.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	c.MergedResourceConfig = apiextensionsserver.DefaultAPIResourceConfigSource()
	c.RESTOptionsGetter = custom{b, definitionsCodec}
	extensions, err := (&apiextensionsserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: c, SharedInformerFactory: b.informers},
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: custom{b, unstructuredCodec}, MasterCount: 1,
			ServiceResolver:     webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, b.loopback, tracing.NewNoopTracerProvider()),
		},
	}).Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(missing))
	if err != nil {
		return err
	}
	main, err := b.config.Complete(b.informers).New("kube-apiserver", extensions.GenericAPIServer)
	if err != nil {
		return err
	}
	if err := b.install(main); err != nil {
		return err
	}
	b.server.handler = main.Handler
	close(b.server.ready)
	main.RunPostStartHooks(b.ctx)
	return nil
}

// within polls until something is so.
func within(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		ok, err := so()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
