// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// inTree replaces a module of the kernel's own, which another one uses. Both come back.
func (s *Steps) inTree(ctx context.Context) error {
	const name = "drover_refused"
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	if _, err := s.Console(ctx, "modprobe bonding"); err != nil {
		return err
	}
	both := func(ctx context.Context, want bool) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, "bonding", want), s.InKernel(ctx, artifacts.Linux61, "tls", want))
	}
	if err := both(ctx, true); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "in-tree"}
	m := Module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"tls"}
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module is loaded in place of the kernel's own", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, name), both(ctx, false))
	}); err != nil {
		return err
	}
	if err := s.Remove(ctx, key, name); err != nil {
		return err
	}
	return s.Eventually(ctx, "the kernel's own are back", func(ctx context.Context) error { return both(ctx, true) })
}

// untouched is how long a set of which one module is busy has to stay as it is: several tries.
const untouched = 3 * time.Minute

// inTreeBusy asks for two of the kernel's own to leave, of which a process holds the second one,
// that was loaded with a parameter. Nothing leaves before the process ends; with the Module gone,
// both are as they were.
func (s *Steps) inTreeBusy(ctx context.Context) error {
	const name = "drover_refused"
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	pid, err := s.Console(ctx, "modprobe tls; modprobe loop max_loop=3; sleep 86400 </dev/loop0 >/dev/null 2>&1 & echo $!")
	if err != nil {
		return err
	}
	as := func(ctx context.Context, want bool) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, "tls", want), s.InKernel(ctx, artifacts.Linux61, "loop", want))
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "in-tree-busy"}
	m := Module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"tls", "loop"}
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the status names the process", func(ctx context.Context) error {
		a, err := s.attempt(ctx, key)
		if err == nil && (a.Reason != v1beta1.ReasonInUse || !strings.Contains(a.Message, "Module loop is in use by probably process sleep")) {
			err = fmt.Errorf("the attempt is %s: %s", a.Reason, a.Message)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.Throughout(ctx, untouched, func(ctx context.Context) error { return as(ctx, true) }); err != nil {
		return err
	}
	left, err := s.logged(ctx, "Unloading", key)
	s.Extra["busySetUnloads"] = left
	if err != nil || left > 0 {
		return errors.Join(err, fmt.Errorf("%d modules left for %s while one was in use", left, key))
	}
	if _, err := s.Console(ctx, "kill "+strings.TrimSpace(pid)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module is loaded in place of the kernel's own", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, name), as(ctx, false))
	}); err != nil {
		return err
	}
	if err := s.Remove(ctx, key, name); err != nil {
		return err
	}
	return s.Eventually(ctx, "the kernel's own are back, with the parameter", func(ctx context.Context) error {
		return errors.Join(as(ctx, true), s.Expect(ctx, artifacts.Linux61, "cat /sys/module/loop/parameters/max_loop", "3"))
	})
}

// logged counts what the first node's agent has done for a Module, by the word that its log has for
// it.
func (s *Steps) logged(ctx context.Context, word string, key client.ObjectKey) (int, error) {
	log, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "logs", "daemonset/drover-agent")
	n := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, word) && strings.Contains(line, key.String()) {
			n++
		}
	}
	return n, err
}

// notInForce loads the build of a Module by hand, with another parameter, before the Module comes:
// what is live is kept, and both values are told. Unloaded once, it is loaded as it is ordered.
func (s *Steps) notInForce(ctx context.Context) error {
	if _, err := s.Console(ctx, "cp $(find /var/lib/drover/store -name drover_sample.ko | head -n 1) /tmp/sample.ko"); err != nil {
		return err
	}
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, Loader, m); err != nil {
		return err
	}
	if err := s.Remove(ctx, Loader, Sample); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "insmod /tmp/sample.ko devices=2 greeting=mine"); err != nil {
		return err
	}
	again := Module(Loader, "", "", "")
	again.Spec = m.Spec
	if err := s.Client.Create(ctx, again); err != nil {
		return err
	}
	ordered := m.Spec.ModuleLoader.Container.Modprobe.Parameters[1]
	_, value, _ := strings.Cut(ordered, "=")
	if err := s.Eventually(ctx, "the Module names both values", func(ctx context.Context) error {
		return errors.Join(s.ConditionIs(ctx, Loader, v1beta1.ConditionLoaded, "True", v1beta1.ReasonParametersDiffer),
			s.attemptIs(ctx, v1beta1.AttemptWaiting, fmt.Sprintf("greeting is %q, not %q", "mine", value)),
			s.Expect(ctx, artifacts.Linux61, greeting, "mine"))
	}); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "rmmod drover_sample"); err != nil {
		return err
	}
	return s.Eventually(ctx, "it is loaded with what is ordered", func(ctx context.Context) error {
		return errors.Join(s.ConditionIs(ctx, Loader, v1beta1.ConditionLoaded, "True", v1beta1.ReasonLoaded),
			s.Expect(ctx, artifacts.Linux61, greeting, value))
	})
}

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
