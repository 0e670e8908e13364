// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// WatchModules watches Modules from where the options' resource version says; without one, those that exist come first.
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

// NextChange gives a channel that is closed at the next change of a Module that the options choose, or when the API server
// ends the watch, which it does every few minutes.
func (c *Client) NextChange(ctx context.Context, namespace string, options metav1.ListOptions) (<-chan struct{}, error) {
	var list v1beta1.ModuleList
	if err := c.Modules.Get().Namespace(namespace).Resource("modules").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	options.Limit, options.ResourceVersion = 0, list.ResourceVersion
	w, err := c.WatchModules(ctx, namespace, options)
	if err != nil {
		return nil, err
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		defer w.Stop()
		select {
		case <-ctx.Done():
		case <-w.ResultChan():
		}
	}()
	return moved, nil
}
