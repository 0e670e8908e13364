// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/release"
	"github.com/drover-project/drover/internal/shared/kube/process"
)

// releaseCommand is for uninstalls: `drover-operator release`.
const releaseCommand = "release"

// releaseAll takes off what an uninstall leaves on objects, and ends.
func releaseAll(ctx context.Context, args []string) error {
	set := flag.NewFlagSet(operator.Name+" "+releaseCommand, flag.ContinueOnError)
	log, err := process.Parse(set, args)
	if err != nil {
		return err
	}
	config, err := process.Cluster(log)
	if err != nil {
		return err
	}
	scheme, err := process.Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(process.Clients(config, operator.Name), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	released, kept, err := release.All(ctx, c, clock.RealClock{})
	if kept != "" {
		log.Info("finalizers of Modules and labels of Nodes stay, which are KMM's as well: once KMM has stopped, run this again", "reason", kept)
	}
	log.Info("took finalizers, cordons, taints, stale labels and conditions off", "objects", released)
	return err
}
