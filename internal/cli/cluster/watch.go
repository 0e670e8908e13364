// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
)

// Await watches the object of a name until seen has seen enough, fails, or ctx ends. It prints to
// out what seen waits for, when that changes.
func Await[T runtime.Object](ctx context.Context, out io.Writer, begin func(context.Context, string) (watch.Interface, error),
	name string, seen func(event watch.EventType, now T) (enough bool, waitsFor string, err error)) error {
	for said := ""; ctx.Err() == nil; {
		w, err := begin(ctx, name)
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			now, ok := event.Object.(T)
			if !ok {
				break // an error that ends the watch; a new one says more
			}
			enough, text, err := seen(event.Type, now)
			if enough || err != nil {
				w.Stop()
				return err
			}
			if text != said {
				_, _ = fmt.Fprintln(out, "waiting:", text)
				said = text
			}
		}
		w.Stop()
	}
	return ctx.Err()
}

// WatchModule watches one Module, which comes first as it is.
func (c *Client) WatchModule(ctx context.Context, name string) (watch.Interface, error) {
	w, err := c.modules(c.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, fmt.Errorf("watch Modules: %w", err)
	}
	return w, nil
}

// NextChange gives a channel that closes at the next change of a chosen Module or, if no label is
// asked for, of a ManagedClusterModule; and when the API server ends a watch, as it does every few
// minutes.
func (c *Client) NextChange(ctx context.Context, namespace string, options metav1.ListOptions) (<-chan struct{}, error) {
	ctx, cancel := context.WithCancel(ctx)
	modules, err := fromNow(ctx, c.modules(namespace), "Modules", options)
	if err != nil {
		cancel()
		return nil, err
	}
	managed := watch.Interface(watch.NewFake()) // nothing ever comes of it
	if options.LabelSelector == "" {
		// It fails without ManagedClusterModules, and for users who may not watch them.
		if w, err := fromNow(ctx, c.managed(), "ManagedClusterModules", options); err == nil {
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

// fromNow watches what is to come.
func fromNow[O object, L objects](ctx context.Context, c *gentype.ClientWithList[O, L], what string,
	options metav1.ListOptions) (watch.Interface, error) {
	list, err := c.List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	options.Limit, options.ResourceVersion = 0, list.GetResourceVersion()
	w, err := c.Watch(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	return w, nil
}
