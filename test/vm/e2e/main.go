// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command e2e proves Drover's main job on real kernels: nodes in QEMU with containerd and a kubelet
// join an embedded control plane, the operator and the agent are deployed from config/default as an
// administrator does it, kernel modules are compiled here, and only API objects ask for anything.
// Facts about kernels are read over the nodes' serial consoles, never from our own status.
//
// GROUP chooses what is proved:
//
//	main        the default
//	node        drift, reboots and busy modules
//	dra         a DRA driver
//	operators   device operators and the sample device plugin
//	hub         a hub that builds for two spokes of hollow nodes
//	agent       measures what the agent costs
//	boot        measures boots: cold, warm and baked
//	privileges  takes away all that the agent is allowed, one thing at a time
//	build       images are built and signed on a node of their own
//	dkms        the same with each of Debian's packages PKGS
//	disk        cuts the power of a machine in the middle of loads, without a cluster
//	release     a kubelet without image volumes: KUBERNETES=1.31 GROUP=release
//	selinux     nodes that enforce SELinux: Debian's policy, and with container-selinux's two rules
//	install     the Helm chart: installed, upgraded, uninstalled; run by make e2e-install
//	versions    release, once for each such release of Kubernetes
//
// STEPS=rmmod,inUse runs only those of the group, for work on them: some stand on the ones before.
// TRACE=1 prints how long each thing took that a step waited for. It ends with one line RESULT: a
// boolean per step, and figures.
//
// BREAK=image asks for an image that does not exist, so that the result is red. Other values:
//
//	agent              busy lets modules come and go while it should be idle
//	boot               bake damages what was baked
//	disk               fsync takes fsync away from the agent's state files; SEED chooses the
//	                   moments, and CUTS how many
//	privileges         item takes nothing away
//	build              unsigned has the unsigned image pushed, too
//	install            unload has the kernel module unloaded during the upgrade
//	selinux            file has the agent load from its files, as where SELinux is off
//	versions, release  mode asks for image volumes
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/drover-project/drover/test/vm/e2e/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, suite.Overall())
	do := func(ctx context.Context) error { return suite.Run(ctx, groups, questions[suite.Group()]) }
	switch suite.Group() {
	case "disk":
		do = disk
	case "versions":
		do = versions
	}
	err := do(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-kernel:", err)
		os.Exit(1)
	}
}
