// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// WatchModules watches Modules from the options' resource version on; without one, all come first.
func (c *Client) WatchModules(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	w, err := c.Modules.Get().Namespace(namespace).Resource("modules").VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	switch {
	case unknownKind(err):
		return nil, errUnknownKind
	case err != nil:
		return nil, fmt.Errorf("watch Modules: %w", err)
	}
	return w, nil
}

// NextChange gives a channel that closes at the next change of a chosen Module or, if no label is
// asked for, of a ManagedClusterModule; and when the API server ends a watch, as it does every few
// minutes.
func (c *Client) NextChange(ctx context.Context, namespace string, options metav1.ListOptions) (<-chan struct{}, error) {
	ctx, cancel := context.WithCancel(ctx)
	modules, err := c.nextModule(ctx, namespace, options)
	if err != nil {
		cancel()
		return nil, err
	}
	managed := watch.Interface(watch.NewFake()) // nothing ever comes of it
	if options.LabelSelector == "" {
		if w := c.nextManaged(ctx, options); w != nil {
			managed = w
		}
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		defer cancel()
		defer modules.Stop()
		defer managed.Stop()
		select {
		case <-ctx.Done():
		case <-modules.ResultChan():
		case <-managed.ResultChan():
		}
	}()
	return moved, nil
}

func (c *Client) nextModule(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	var list v1beta1.ModuleList
	if err := c.Modules.Get().Namespace(namespace).Resource("modules").VersionedParams(&options,
		metav1.ParameterCodec).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	options.Limit, options.ResourceVersion = 0, list.ResourceVersion
	return c.WatchModules(ctx, namespace, options)
}

// nextManaged is nil without ManagedClusterModules, and for users who may not watch them.
func (c *Client) nextManaged(ctx context.Context, options metav1.ListOptions) watch.Interface {
	var list hubv1beta1.ManagedClusterModuleList
	if err := c.Hub.Get().Resource(managedResource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&list); err != nil {
		return nil
	}
	options.Limit, options.ResourceVersion, options.Watch = 0, list.ResourceVersion, true
	w, err := c.Hub.Get().Resource(managedResource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil
	}
	return w
}
