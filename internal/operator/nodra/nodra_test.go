// SPDX-License-Identifier: Apache-2.0

// Package nodra_test has the operator at a cluster that serves no resource.k8s.io/v1, as those
// before Kubernetes 1.34.
package nodra_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) {
	var args map[string]string
	if os.Getenv(devcluster.VersionVariable) == "" { // the older ones that are asked for by it know no such version
		args = map[string]string{"runtime-config": "resource.k8s.io/v1=false"}
	}
	os.Exit(env.MainWith(m, args))
}

// TestTheOperatorStartsWithoutDRA: its caches sync, and it knows that it must not ask for claims.
func TestTheOperatorStartsWithoutDRA(t *testing.T) {
	e := env.Get(t)
	options := &operator.Options{MetricsAddress: "0", ProbeAddress: "0", Log: logr.Discard(), Orders: module.Options{DRA: true}}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	if options.Orders.DRA {
		t.Error("the operator takes resource.k8s.io/v1 for served")
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	if err := mgr.GetClient().List(ctx, &corev1.NodeList{}); err != nil {
		t.Error(err)
	}
	if err := mgr.GetClient().List(ctx, &v1beta1.ModuleList{}); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
