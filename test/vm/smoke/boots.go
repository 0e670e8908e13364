// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-project/drover/test/vm/artifacts"
)

// reboot goes down in order: the boot ID changes, the disk does not, and what
// was loaded is gone from the kernel.
func (s *smoke) reboot(ctx context.Context) error {
	n := s.nodes[artifacts.Linux61]
	before := n.Console().BootID()
	if _, err := n.Output(ctx, "echo kept >/root/mark"); err != nil {
		return err
	}
	after, err := n.Reboot(ctx)
	if err != nil {
		return err
	}
	if before == after {
		return fmt.Errorf("boot ID %s before and after", after)
	}
	if err := s.waitReady(ctx, n); err != nil {
		return err
	}
	return expect(ctx, n, "cat /root/mark; grep -c v4l2loopback /proc/modules || true", "kept\n0")
}

// runWithoutRegistry runs a pod from images of before the reboot.
func (s *smoke) runWithoutRegistry(ctx context.Context) error {
	if err := s.registry.Down(); err != nil {
		return err
	}
	if _, err := s.finish(ctx, shellPod("no-registry", "busybox true")); err != nil {
		return err
	}
	return s.registry.Up()
}

// cutPower stops the machine without warning: what was synced is there, and
// the node comes back.
func (s *smoke) cutPower(ctx context.Context) error {
	n := s.nodes[artifacts.Linux61]
	if _, err := n.Output(ctx, "echo synced >/root/mark && sync"); err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	if err := n.PowerOn(); err != nil {
		return err
	}
	if err := s.waitReady(ctx, n); err != nil {
		return err
	}
	return expect(ctx, n, "cat /root/mark", "synced")
}

// cutNetwork takes the node off the network and back; the console works all
// the time.
func (s *smoke) cutNetwork(ctx context.Context) error {
	n := s.nodes[artifacts.Linux61]
	if err := expect(ctx, n, askServer, "reached"); err != nil {
		return err
	}
	if err := n.CutNetwork(ctx); err != nil {
		return err
	}
	if err := expect(ctx, n, "cat /sys/class/net/eth0/carrier; "+askServer, "0\ncut off"); err != nil {
		return err
	}
	if err := n.RestoreNetwork(ctx); err != nil {
		return err
	}
	return expect(ctx, n, "while [ $(cat /sys/class/net/eth0/carrier) = 0 ]; do usleep 100000; done; "+askServer, "reached")
}

// upgradeKernel boots the other kernel from the same disk.
func (s *smoke) upgradeKernel(ctx context.Context) error {
	n := s.nodes[artifacts.Linux61]
	n.SetKernel(artifacts.Linux612)
	if _, err := n.Reboot(ctx); err != nil {
		return err
	}
	if err := s.waitReady(ctx, n); err != nil {
		return err
	}
	return expect(ctx, n, "cat /root/mark; modprobe videodev && grep -c '^videodev ' /proc/modules", "synced\n1")
}

// runner is a guest.
type runner interface {
	Output(ctx context.Context, script string) (string, error)
}

// expect runs a script in a guest and compares its output.
func expect(ctx context.Context, guest runner, script, want string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	got, err := guest.Output(ctx, script)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%q gives %q, not %q", script, got, want)
	}
	return nil
}
