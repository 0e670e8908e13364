// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"context"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
)

// prefix is where a kube-apiserver keeps its keys in etcd (--etcd-prefix).
const prefix = "/registry"

// etcdOptions are a kube-apiserver's, but objects are kept as JSON, so that a reader of the store
// needs no codec.
func etcdOptions() *options.EtcdOptions {
	o := options.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, nil))
	o.DefaultStorageMediaType = runtime.ContentTypeJSON
	return o
}

// endpoint is what the watch cache asks about an etcd before it asks for a watch's progress.
type endpoint struct{}

func (endpoint) Endpoints() []string { return []string{"memory"} }

func (endpoint) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: "3.7.0"}, nil
}

// native gives the kinds that are compiled in their storage.
type native struct{ *builder }

func (n native) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := n.storage.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	return n.options(config, n.storage.ResourcePrefix(resource)), nil
}

// custom gives custom resources, and their definitions, their storage.
type custom struct {
	*builder
	codec runtime.Codec
}

var (
	unstructuredCodec = runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme)
	definitionsCodec  = apiextensionsserver.Codecs.LegacyCodec(apiextensionsserver.Scheme.PrioritizedVersionsAllGroups()...)
)

func (c custom) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig(prefix, c.codec)
	return c.options(config.ForResource(resource), path.Join(resource.Group, resource.Resource)), nil
}

func (b *builder) options(config *storagebackend.ConfigForResource, key string) generic.RESTOptions {
	if b.o.Now != nil {
		config.Codec = restamped{config.Codec, b.o.Now}
	}
	return generic.RESTOptions{StorageConfig: config, Decorator: b.decorate, ResourcePrefix: key,
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1}
}

// decorate makes the storage of one resource: etcd's client is the one in memory.
func (b *builder) decorate(c *storagebackend.ConfigForResource, key string, keyOf func(runtime.Object) (string, error),
	object, list func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	versioner := storage.APIObjectVersioner{}
	transformer := c.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	raw, err := etcd3.New(b.etcd, nil, c.Codec, object, list, c.Prefix, key, c.GroupResource, transformer,
		c.LeaseManagerConfig, etcd3.NewDefaultDecoder(c.Codec, versioner), versioner)
	if err != nil || !b.o.WatchCache {
		return raw, func() {}, err
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{Storage: raw, Versioner: versioner, GroupResource: c.GroupResource,
		EventsHistoryWindow: c.EventsHistoryWindow, ResourcePrefix: key, KeyFunc: keyOf, NewFunc: object, NewListFunc: list,
		GetAttrsFunc: attributes, IndexerFuncs: triggers, Indexers: indexers, Codec: c.Codec})
	if err != nil {
		return nil, func() {}, err
	}
	return cacher.NewCacheDelegator(cached, raw), cached.Stop, nil
}
