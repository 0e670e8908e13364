// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKnown(t *testing.T) {
	refusal := func(policy string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p",
			errors.New("ValidatingAdmissionPolicy '"+policy+"' with binding 'b' denied request: no params found"))
	}
	late, other, away := refusal("drover-namespaces-of-modules"), refusal("drover-carriers"), errors.New("no such host")
	always := make([]error, 99)
	for i := range always {
		always[i] = late
	}
	cases := map[string]struct {
		given  []error
		then   error
		writes int
	}{
		"at once":                          {given: []error{nil}, writes: 1},
		"an outdated policy":               {given: []error{late, late, nil}, writes: 3},
		"an outdated policy of DaemonSets": {given: []error{refusal("drover-daemonsets-of-modules"), nil}, writes: 2},
		"another policy":                   {given: []error{other}, then: other, writes: 1},
		"another policy afterwards":        {given: []error{late, other}, then: other, writes: 2},
		"no API server":                    {given: []error{away}, then: away, writes: 1},
		"a refusal that lasts":             {given: always, then: late, writes: knownWithin.Steps},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes := 0
				err := Known(t.Context(), func() error { writes++; return tc.given[writes-1] })
				if !errors.Is(err, tc.then) || writes != tc.writes {
					t.Errorf("got %v after %d writes, want %v after %d", err, writes, tc.then, tc.writes)
				}
			})
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Known(ended, func() error { return late }); err == nil {
		t.Error("no error although the context has ended")
	}
}
