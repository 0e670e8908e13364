// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

const (
	// bootTarget is how soon after its start the static pod's agent shall have loaded.
	bootTarget = 2 * time.Second
	manifests  = "ls /etc/kubernetes/manifests"
)

// bootOption installs Drover with or without the static pod, as an administrator does it.
func (s *Steps) bootOption(ctx context.Context, on bool) error {
	dir := filepath.Join(s.Dir, "overlay")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := filepath.Rel(dir, filepath.Join(s.Cache.Repository(), "config"))
	if err != nil {
		return err
	}
	text := "resources: [" + config + "/default]\n"
	if on {
		text += "components: [" + config + "/boot]\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", dir); err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "-n", suite.OperatorNamespace, "rollout", "status", "--timeout=120s", "daemonset/drover-agent")
	return err
}

// staticPodIs waits until the API server shows the static pod, or does not any more.
func (s *Steps) staticPodIs(ctx context.Context, running bool) error {
	return s.Eventually(ctx, "the static pod is as the option says", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		err := client.IgnoreNotFound(s.Client.Get(ctx,
			client.ObjectKey{Namespace: suite.OperatorNamespace, Name: "drover-boot-" + suite.NodeName(artifacts.Linux61)}, pod))
		if err == nil && (pod.Status.Phase == corev1.PodRunning) != running {
			err = fmt.Errorf("its phase is %q", pod.Status.Phase)
		}
		return err
	})
}

// StaticPod boots without the API server, with the option on: the module is there before that comes
// back, the DaemonSet's agent takes over without touching it, and nothing is left of the option
// when it is off again.
func (s *Steps) StaticPod(ctx context.Context) error {
	if err := s.bootOption(ctx, true); err != nil {
		return err
	}
	if err := s.staticPodIs(ctx, true); err != nil {
		return err
	}
	if err := s.loaderReady(ctx); err != nil {
		return err
	}
	if err := s.Cluster.StopComponent(ctx, devcluster.APIServer); err != nil {
		return err
	}
	booted := s.bootAlone(ctx)
	if err := errors.Join(booted, s.Cluster.StartComponent(ctx, devcluster.APIServer)); err != nil {
		return err
	}
	if err := errors.Join(s.loaderReady(ctx), s.Expect(ctx, artifacts.Linux61, suite.Loads, "1")); err != nil {
		return err
	}
	// The DaemonSet's agent works again: it repairs.
	if _, err := s.Console(ctx, "rmmod drover_sample"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the DaemonSet's agent has taken over", func(ctx context.Context) error {
		return s.Expect(ctx, artifacts.Linux61, suite.Loads, "2")
	}); err != nil {
		return err
	}
	if err := s.bootOption(ctx, false); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the manifest is gone", func(ctx context.Context) error {
		return s.Expect(ctx, artifacts.Linux61, manifests, "")
	}); err != nil {
		return err
	}
	if err := s.staticPodIs(ctx, false); err != nil {
		return err
	}
	return errors.Join(s.loaderReady(ctx), s.Expect(ctx, artifacts.Linux61, suite.Loads, "2"))
}

// bootAlone boots the node while the API server is away, and measures how long the static pod's
// agent took.
func (s *Steps) bootAlone(ctx context.Context) error {
	if err := s.Reboot(ctx); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module is loaded without the API server", func(ctx context.Context) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, Sample, true), s.Expect(ctx, artifacts.Linux61, suite.Loads, "1"))
	}); err != nil {
		return err
	}
	if _, err := s.Core.Discovery().ServerVersion(); err == nil {
		return errors.New("the API server is there")
	}
	return s.bootTook(ctx)
}

// bootTook measures from the agent's first words to the load, by its log, and from the process's
// start, which is the container's: making that comes before the agent's program.
func (s *Steps) bootTook(ctx context.Context) error {
	var words []string
	if err := s.Eventually(ctx, "the log tells of the start and of the load", func(ctx context.Context) error {
		output, err := s.Console(ctx, "cat $(ls -t /var/log/pods/"+suite.OperatorNamespace+"_drover-boot-*/boot/*.log | head -n 1) | sed -n "+
			"'s/^\\([^ ]*\\) .*\"\\(Starting\\|Loaded\\)\".*/\\1/p'")
		if err != nil {
			return err
		}
		// The runtime writes the log, a moment after the kernel has the module.
		if words = strings.Fields(output); len(words) != 2 {
			return fmt.Errorf("it tells %q", output)
		}
		return nil
	}); err != nil {
		return err
	}
	began, err1 := time.Parse(time.RFC3339Nano, words[0])
	loaded, err2 := time.Parse(time.RFC3339Nano, words[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	took := loaded.Sub(began)
	s.Figures["bootToLoadedSeconds"] = took.Round(10 * time.Millisecond).Seconds()
	// Both since the kernel's start: the process's, in hundredths of a second, and the kernel's line
	// about the load.
	output, err := s.Console(ctx, "for p in /proc/[0-9]*; do cat $p/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q '^[^ ]*drover-agent boot ' "+
		"&& awk '{print $22/100}' $p/stat; done | head -n 1; "+
		"dmesg | sed -n 's/^\\[ *\\([0-9.]*\\)\\] drover_sample: loaded.*/\\1/p' | head -n 1")
	if err != nil {
		return err
	}
	s.Say("the static pod's agent had loaded %s after its first words (target %s); seconds since the kernel's start, of its container and "+
		"of the load: %s",
		took.Round(10*time.Millisecond), bootTarget, strings.Join(strings.Fields(output), ", "))
	return nil
}

// successorTime is how long it takes until another agent serves where one cannot end: its grace
// period, what the operator waits after it, and the start of a pod.
const successorTime = 8 * time.Minute

// hungCall lets an init wait for ever, and deletes the agent's pod, which cannot end: the operator
// removes its object, and the next agent serves beside what is left of it.
func (s *Steps) hungCall(ctx context.Context) error {
	const name = "drover_hang"
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "hang"}
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the status says that the call does not return", func(ctx context.Context) error {
		a, err := s.attempt(ctx, key)
		if err == nil && a.Reason != v1beta1.ReasonTimeout {
			err = fmt.Errorf("the attempt is %s (%s): %s", a.State, a.Reason, a.Message)
		}
		return err
	}); err != nil {
		return err
	}
	const agents = "-l=app.kubernetes.io/name=drover-agent"
	before, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "get", "pods", agents, "-o=name")
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "delete", "pods", agents, "--wait=false"); err != nil {
		return err
	}
	if err := s.Within(ctx, successorTime, "another agent runs", func(ctx context.Context) error {
		now, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "get", "pods", agents, "--field-selector=status.phase=Running", "-o=name")
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("agents: %q", now)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.Greet(ctx, "successor"); err != nil {
		return err
	}
	return errors.Join(s.greeted(ctx, "successor"), s.InKernel(ctx, artifacts.Linux61, name, true))
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
