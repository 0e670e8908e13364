// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// patience is how long a read waits for our own writes to show, longer than a busy cache lags.
const patience = 5 * time.Second

// Patient bounds how long reads wait for the client's own writes. The cache knows a write by an
// event of its version or a later one, which may never come for an object that was deleted while
// the watch was down. Such a read takes what the cache has: callers must bear an outdated answer.
func Patient(c client.Client) client.Client { return patient{Client: c, limit: patience} }

type patient struct {
	client.Client
	limit time.Duration
}

// Get implements client.Reader.
func (p patient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return p.read(ctx, func(ctx context.Context) error {
		return p.Client.Get(ctx, key, object, options...)
	}, func() error {
		return p.Client.Get(ctx, key, object, append(options, client.DisableReadYourWritesConsistency)...)
	})
}

// List implements client.Reader.
func (p patient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return p.read(ctx, func(ctx context.Context) error {
		return p.Client.List(ctx, list, options...)
	}, func() error {
		return p.Client.List(ctx, list, append(options, client.DisableReadYourWritesConsistency)...)
	})
}

func (p patient) read(ctx context.Context, first func(context.Context) error, then func() error) error {
	short, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := first(short)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("The cache does not show our own writes; reading what it has", "after", p.limit)
	return then()
}
