// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/internal/shared/kube"
)

var errRefused = errors.New("refused")

// TestReadsDoNotWaitForEver: a cache that never shows a write is read as it is.
func TestReadsDoNotWaitForEver(t *testing.T) {
	wait := func(ctx context.Context, consistent bool) error {
		if !consistent {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	stuck := interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, options ...client.GetOption) error {
			return wait(ctx, !(&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
		},
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
			return wait(ctx, !(&client.ListOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
		},
	}
	refusing := interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errRefused
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errRefused
		},
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		given interceptor.Funcs
		ctx   context.Context
		then  error
	}{
		"a cache that is stuck":    {given: stuck, ctx: t.Context()},
		"a refusal":                {given: refusing, ctx: t.Context(), then: errRefused},
		"a caller that has enough": {given: stuck, ctx: ended, then: context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := kube.Patient(fake.NewClientBuilder().WithInterceptorFuncs(tc.given).Build(), nil, 10*time.Millisecond)
			if err := c.Get(tc.ctx, client.ObjectKey{Name: "n"}, &corev1.Node{}); !errors.Is(err, tc.then) {
				t.Errorf("get: %v", err)
			}
			if err := c.List(tc.ctx, &corev1.NodeList{}); !errors.Is(err, tc.then) {
				t.Errorf("list: %v", err)
			}
		})
	}
}
