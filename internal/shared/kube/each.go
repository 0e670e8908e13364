// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Each calls do for every item, at most limit at a time, and joins all errors, so that one object
// does not keep others from being written. It starts no more calls once ctx has ended.
func Each[T any](ctx context.Context, limit int, items []T, do func(context.Context, T) error) error {
	var (
		group errgroup.Group
		mu    sync.Mutex
		errs  []error
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	group.SetLimit(limit)
	for _, item := range items {
		if err := ctx.Err(); err != nil {
			fail(err)
			break
		}
		group.Go(func() error {
			if err := do(ctx, item); err != nil {
				fail(err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		fail(err)
	}
	return errors.Join(errs...)
}
