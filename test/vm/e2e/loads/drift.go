// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// driftTime is how soon the agent must see and repair what somebody else has unloaded.
	driftTime = 15 * time.Second
	unloads   = "dmesg | grep -c 'drover_sample: unloaded' || true"
	greeting  = "cat /sys/module/drover_sample/parameters/greeting"
)

// loaderReady waits until the group's Module is ready on the first node.
func (s *Steps) loaderReady(ctx context.Context) error {
	return s.Eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, Loader, Sample)
	})
}

// repair unloads the module behind the agent's back, on a node that has settled: the end of a pod
// keeps its one processor busy for seconds.
func (s *Steps) repair(ctx context.Context) error {
	if err := s.CarrierFree(ctx); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "rmmod drover_sample"); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.Eventually(ctx, "the module is loaded again", func(ctx context.Context) error {
		return s.InKernel(ctx, artifacts.Linux61, Sample, true)
	}); err != nil {
		return err
	}
	if took := time.Since(begin); took > driftTime {
		return fmt.Errorf("the repair took %s, more than %s", took, driftTime)
	}
	if err := s.loaderReady(ctx); err != nil {
		return err
	}
	return errors.Join(s.Expect(ctx, artifacts.Linux61, suite.Loads, "2"), s.Expect(ctx, artifacts.Linux61, greeting, "hello"))
}

// drain does to the node what an administrator does before work on it.
func (s *Steps) drain(ctx context.Context) error {
	before, err := s.Count(ctx, unloads)
	if err != nil {
		return err
	}
	name := suite.NodeName(artifacts.Linux61)
	for _, args := range [][]string{
		{"cordon", name},
		{"drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"},
	} {
		if _, err := s.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := s.Throughout(ctx, 5*time.Second, func(ctx context.Context) error {
		return s.InKernel(ctx, artifacts.Linux61, Sample, true)
	}); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "uncordon", name); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "rollout", "status", "--timeout=90s",
		"deployment/drover-operator"); err != nil {
		return err
	}
	if err := s.loaderReady(ctx); err != nil {
		return err
	}
	after, err := s.Count(ctx, unloads)
	if err == nil && after != before {
		err = fmt.Errorf("%d unloads during cordon, drain and uncordon", after-before)
	}
	return err
}

// Greet changes a parameter, which takes a reload.
func (s *Steps) Greet(ctx context.Context, text string) error {
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, Loader, m); err != nil {
		return err
	}
	changed := m.DeepCopy()
	changed.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"devices=2", "greeting=" + text}
	return s.Client.Patch(ctx, changed, client.MergeFrom(m))
}

// greeted waits until the module is loaded with the parameter and the Module is ready again.
func (s *Steps) greeted(ctx context.Context, text string) error {
	return s.Eventually(ctx, "the module is loaded with "+text, func(ctx context.Context) error {
		return errors.Join(s.Expect(ctx, artifacts.Linux61, greeting, text), s.Ready(ctx, artifacts.Linux61, Loader, Sample))
	})
}

// attemptIs checks what the node's status says of an order that is not fulfilled.
func (s *Steps) attemptIs(ctx context.Context, state v1beta1.AttemptState, words ...string) error {
	a, err := s.attempt(ctx, Loader)
	if err != nil {
		return err
	}
	for _, word := range words {
		if !strings.Contains(a.Message, word) {
			return fmt.Errorf("the attempt does not name %q: %s", word, a.Message)
		}
	}
	if a.State != state {
		return fmt.Errorf("the attempt is %s (%s): %s", a.State, a.Reason, a.Message)
	}
	return nil
}

// attempt is what the first node's status says of an order that is not fulfilled.
func (s *Steps) attempt(ctx context.Context, key client.ObjectKey) (*v1beta1.NodeModuleAttempt, error) {
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, nmc); err != nil {
		return nil, err
	}
	for i := range nmc.Status.Attempts {
		if a := &nmc.Status.Attempts[i]; a.Namespace == key.Namespace && a.Name == key.Name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("the status has no attempt of %s", key)
}

// inUse lets a pod hold the device while a reload is ordered.
func (s *Steps) inUse(ctx context.Context) error {
	if err := s.HoldAsPod(ctx, 65532); err != nil {
		return err
	}
	if err := s.Greet(ctx, "held"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the status names the pod", func(ctx context.Context) error {
		return s.attemptIs(ctx, v1beta1.AttemptInUse, Devices+"/holder")
	}); err != nil {
		return err
	}
	if err := s.Expect(ctx, artifacts.Linux61, greeting, "hello"); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Devices, Name: "holder"}}
	if err := s.Client.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		return err
	}
	return s.greeted(ctx, "held")
}

// HoldAsPod runs a pod that holds the device, as that user.
func (s *Steps) HoldAsPod(ctx context.Context, user int64) error {
	if err := s.Namespace(ctx, Devices, "privileged"); err != nil {
		return err
	}
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Devices, Name: "holder"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name: "holder", Image: registry.Host + "/drover/sample-reader:dev", Args: []string{"--hold", "/host/dev/drover_sample0"},
				SecurityContext: &corev1.SecurityContext{Privileged: &yes, RunAsUser: &user},
				VolumeMounts:    []corev1.VolumeMount{{Name: "dev", MountPath: "/host/dev"}},
			}},
			Volumes: []corev1.Volume{{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}}},
		},
	}
	if err := s.Client.Create(ctx, pod); err != nil {
		return err
	}
	return s.Eventually(ctx, "the pod holds the device", func(ctx context.Context) error {
		return s.Expect(ctx, artifacts.Linux61, "test $(cat /sys/module/drover_sample/refcnt) -gt 0 && echo held || true", "held")
	})
}

// holdDevice lets a process of the node itself hold the device.
const holdDevice = "sleep 600 </dev/drover_sample0 >/dev/null 2>&1 & echo $! >/tmp/holder"

// reloadAlone cuts the network between the order and the unload.
func (s *Steps) reloadAlone(ctx context.Context) error {
	n := s.Nodes[artifacts.Linux61]
	before, err := s.Count(ctx, suite.Loads)
	if err != nil {
		return err
	}
	if _, err := s.Console(ctx, holdDevice); err != nil {
		return err
	}
	if err := s.Greet(ctx, "alone"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the order has arrived", func(ctx context.Context) error {
		return s.attemptIs(ctx, v1beta1.AttemptInUse)
	}); err != nil {
		return err
	}
	if err := n.CutNetwork(ctx); err != nil {
		return err
	}
	if _, err := s.Console(ctx, "kill $(cat /tmp/holder)"); err != nil {
		return err
	}
	alone := s.Eventually(ctx, "the module is loaded again without a network", func(ctx context.Context) error {
		return errors.Join(s.Expect(ctx, artifacts.Linux61, greeting, "alone"),
			s.Expect(ctx, artifacts.Linux61, suite.Loads, strconv.Itoa(before+1)))
	})
	if err := errors.Join(alone, n.RestoreNetwork(ctx)); err != nil {
		return err
	}
	return s.greeted(ctx, "alone")
}

// agentKilled kills the agent at the moments of a reload that the kernel's log shows.
func (s *Steps) agentKilled(ctx context.Context) error {
	for moment, wait := range map[string]string{
		"unloaded": "n=$(" + unloads + "); echo ready >/tmp/killer; while [ $(" + unloads + ") = $n ]; do :; done; kill -9 " + suite.AgentPID +
			" && echo killed >/tmp/killer",
		"loaded": "n=$(" + suite.Loads + "); echo ready >/tmp/killer; while [ $(" + suite.Loads + ") = $n ]; do :; done; kill -9 " +
			suite.AgentPID + " && echo killed >/tmp/killer",
	} {
		if _, err := s.Console(ctx, "rm -f /tmp/killer; ("+wait+") >/dev/null 2>&1 &"); err != nil {
			return err
		}
		if err := s.Eventually(ctx, "the killer watches", func(ctx context.Context) error {
			return s.Expect(ctx, artifacts.Linux61, "cat /tmp/killer", "ready")
		}); err != nil {
			return err
		}
		if err := s.Greet(ctx, "killed-when-"+moment); err != nil {
			return err
		}
		if err := s.Eventually(ctx, "the agent was killed when the module was "+moment, func(ctx context.Context) error {
			return s.Expect(ctx, artifacts.Linux61, "cat /tmp/killer", "killed")
		}); err != nil {
			return err
		}
		if err := s.greeted(ctx, "killed-when-"+moment); err != nil {
			return err
		}
	}
	return nil
}

// Reboot restarts the first node and notes its new boot.
func (s *Steps) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.Patience))
	defer cancel()
	boot, err := s.Nodes[artifacts.Linux61].Reboot(ctx)
	if err == nil {
		s.Boots = append(s.Boots, boot)
	}
	return err
}

// rebootAlone takes away all that a boot must not need.
func (s *Steps) rebootAlone(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "scale", "--replicas=0", "deployment/drover-operator"); err != nil {
		return err
	}
	if err := s.operators(ctx, 0); err != nil {
		return err
	}
	if err := s.Registry.Down(); err != nil {
		return err
	}
	if err := s.Reboot(ctx); err != nil {
		return err
	}
	alone := s.Eventually(ctx, "the module is loaded after the boot", func(ctx context.Context) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, Sample, true), s.Expect(ctx, artifacts.Linux61, suite.Loads, "1"))
	})
	if err := errors.Join(alone, s.Registry.Up()); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "scale", "--replicas=1", "deployment/drover-operator"); err != nil {
		return err
	}
	return errors.Join(s.loaderReady(ctx), s.CarrierFree(ctx))
}

// rebootWithoutAPI: the kubelet starts the agent's pod only when it has reached the API server.
func (s *Steps) rebootWithoutAPI(ctx context.Context) error {
	if err := s.Cluster.StopComponent(ctx, devcluster.APIServer); err != nil {
		return err
	}
	rebooted := s.Reboot(ctx)
	if rebooted == nil {
		rebooted = s.Throughout(ctx, 10*time.Second, func(ctx context.Context) error {
			return s.InKernel(ctx, artifacts.Linux61, Sample, false)
		})
	}
	if err := errors.Join(rebooted, s.Cluster.StartComponent(ctx, devcluster.APIServer)); err != nil {
		return err
	}
	if err := s.loaderReady(ctx); err != nil {
		return err
	}
	return s.Expect(ctx, artifacts.Linux61, suite.Loads, "1")
}
