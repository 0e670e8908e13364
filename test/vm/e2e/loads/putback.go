// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// putBack replaces a module of the host's own tree, loaded with a parameter, whose init then has no
// memory for a while: with the Module gone, it comes back all the same, with its parameter.
func (s *Steps) putBack(ctx context.Context) error {
	const name, fickle = "drover_refused", "drover_fickle"
	key := client.ObjectKey{Namespace: Restricted, Name: "put-back"}
	if err := s.intoHostTree(ctx, fickle); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "modprobe "+fickle+" value=7"); err != nil {
		return err
	}
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	m := Module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{fickle}
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module is loaded in place of the host's own", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, name), s.InKernel(ctx, artifacts.Linux61, fickle, false))
	}); err != nil {
		return err
	}
	before, err := s.Console(ctx, "cat /proc/sys/kernel/panic; echo 77 >/proc/sys/kernel/panic")
	if err != nil {
		return err
	}
	if err := s.Client.Delete(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the kernel has refused it twice", func(ctx context.Context) error {
		n, err := s.Count(ctx, "dmesg | grep -c '"+fickle+": no memory' || true")
		if err == nil && n < 2 {
			err = fmt.Errorf("it has %d times", n)
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "echo "+before+" >/proc/sys/kernel/panic"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the host's own is back with its parameter, and the Module is gone", func(ctx context.Context) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, fickle, true),
			s.Expect(ctx, artifacts.Linux61, "cat /sys/module/"+fickle+"/parameters/value", "7"), s.Gone(ctx, m))
	}); err != nil {
		return err
	}
	_, err = s.Console(ctx, "rmmod "+fickle)
	return err
}

// intoHostTree has one of this group's modules delivered, and copies it into the tree of the first
// node's kernel, where the host's own are.
func (s *Steps) intoHostTree(ctx context.Context, name string) error {
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "for-the-host"}
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module for the host is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "d=/lib/modules/$(uname -r); mkdir -p $d/extra && "+
		"cp $(find /var/lib/drover/store -name "+name+".ko | head -n 1) $d/extra/ && depmod"); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

// otherCluster boots the first node, whose disk tells of a loaded module, into a cluster that has
// never heard of it: the same addresses and keys with an empty store, and Drover installed anew.
// Nothing is loaded before that cluster asks for it.
func (s *Steps) otherCluster(ctx context.Context) error {
	n := s.Nodes[artifacts.Linux61]
	if err := n.Shutdown(ctx); err != nil {
		return err
	}
	if err := s.emptyCluster(ctx); err != nil {
		return err
	}
	if err := s.Install(ctx); err != nil {
		return err
	}
	if err := n.PowerOn(); err != nil {
		return err
	}
	if _, err := n.WaitUp(ctx); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "operator and agent are ready in the other cluster", s.Deployed); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "ls /var/lib/drover/store | grep ."); err != nil {
		return fmt.Errorf("the disk holds nothing of the first cluster: %w", err)
	}
	foreign := s.Throughout(ctx, 30*time.Second, func(ctx context.Context) error { return s.InKernel(ctx, artifacts.Linux61, Sample, false) })
	s.Extra["foreignLoaded"] = foreign != nil
	if foreign != nil {
		return foreign
	}
	return s.LoadModule(ctx)
}

// emptyCluster takes all objects from the control plane.
func (s *Steps) emptyCluster(ctx context.Context) error {
	all := []string{devcluster.ControllerManager, devcluster.Scheduler, devcluster.APIServer, devcluster.Etcd}
	for _, name := range all {
		if err := s.Cluster.StopComponent(ctx, name); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(s.Cluster.Dir, "etcd")); err != nil {
		return err
	}
	for i := range all {
		if err := s.Cluster.StartComponent(ctx, all[len(all)-1-i]); err != nil {
			return err
		}
	}
	if err := s.Connect(); err != nil {
		return err
	}
	return s.Eventually(ctx, "the controllers work in the empty cluster", func(ctx context.Context) error {
		return s.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	})
}
