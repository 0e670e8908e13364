// SPDX-License-Identifier: Apache-2.0

//go:build linux

package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	ptemplate "github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
)

// ptemplateConsumed: the consumers are those that the status lists, and each reads what it was
// allocated.
func (s *steps) ptemplateConsumed(ctx context.Context) error {
	sample := &s.samples.ptemplate
	return s.Eventually(ctx, "the status lists the consumer, which reads its devices", func(ctx context.Context) error {
		want, err := s.consumers(ctx)
		if err != nil {
			return err
		}
		now := &ptemplate.Ptemplate{}
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(sample), now); err != nil {
			return err
		}
		if !slices.Equal(now.Status.Consumers, want) {
			return fmt.Errorf("status.consumers is %v instead of %v", now.Status.Consumers, want)
		}
		output, err := s.Core.CoreV1().Pods(sample.Namespace).GetLogs(want[0], &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return err
		}
		read := map[string]bool{}
		for line := range strings.Lines(string(output)) {
			device, message, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if message != fmt.Sprintf("%q", sample.Spec.DefaultMsg) {
				return fmt.Errorf("the consumer printed %q", line)
			}
			read[device] = true
		}
		if len(read) != int(sample.Spec.RequiredDevices) {
			return fmt.Errorf("the consumer reads %d devices instead of %d", len(read), sample.Spec.RequiredDevices)
		}
		return nil
	})
}

// cdiOnly: containers have the devices that they were allocated and no other, by the files that the
// device plugins wrote. Only those files set the variables: the device plugin's answers hold
// nothing but names.
func (s *steps) cdiOnly(ctx context.Context) error {
	const (
		he = `$(ps -o pid,args | awk '/bin\/[c]onsumer/ && /he_sample/ {print $1; exit}')`
		pt = `$(ps -o pid,args | awk '/bin\/[c]onsumer/ && !/he_sample/ {print $1; exit}')`
	)
	required := fmt.Sprint(s.samples.ptemplate.Spec.RequiredDevices)
	return errors.Join(
		s.Expect(ctx, artifacts.Linux61, `tr '\0' '\n' </proc/`+he+`/environ | grep -E '^he_sample_[01]=/dev/he_sample[01]$' | wc -l`,
			fmt.Sprint(heDevices)),
		s.Expect(ctx, artifacts.Linux61, `tr '\0' '\n' </proc/`+pt+`/environ | grep -E '^ptemplate_[0-4]=/dev/ptemplate-[0-4]$' | wc -l`,
			required),
		s.Expect(ctx, artifacts.Linux61, "ls /proc/"+pt+"/root/dev | grep -cE '^(ptemplate|he_sample)'", required),
		s.Expect(ctx, artifacts.Linux61, "cd /var/run/cdi; ls", "example.com-he-sample.json\nexample.com-ptemplate.json"),
		s.Expect(ctx, artifacts.Linux61, "grep -o '\"name\":' /var/run/cdi/example.com-ptemplate.json | wc -l",
			fmt.Sprint(s.samples.ptemplate.Spec.MaxDev)),
	)
}

// health: a device that vanishes is not given to pods any more, and is again when it is back.
func (s *steps) health(ctx context.Context) error {
	all := int64(s.samples.ptemplate.Spec.MaxDev)
	last := fmt.Sprintf("ptemplate-%d", all-1)
	if _, err := s.Console(ctx, "rm /dev/"+last); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "a device that vanished is unhealthy", func(ctx context.Context) error {
		return s.allocatable(ctx, ptResource, all-1)
	}); err != nil {
		return err
	}
	if _, err := s.Console(ctx, fmt.Sprintf("mknod -m 666 /dev/%[1]s c $(tr : ' ' </sys/class/misc/%[1]s/dev)", last)); err != nil {
		return err
	}
	return s.Eventually(ctx, "the device is back", func(ctx context.Context) error { return s.allocatable(ctx, ptResource, all) })
}

// kubeletRestart: the device plugins register again, and a new consumer gets devices from them.
func (s *steps) kubeletRestart(ctx context.Context) error {
	before, err := s.consumers(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Console(ctx, "kill $(pidof kubelet)"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the device plugins have registered again", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(s.samples.ptemplate.Namespace), client.HasLabels{v1beta1.RoleLabel}); err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("%d device plugins run instead of 2", len(pods.Items))
		}
		for i := range pods.Items {
			output, err := s.Core.CoreV1().Pods(pods.Items[i].Namespace).GetLogs(pods.Items[i].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				return err
			}
			if n := strings.Count(string(output), "Registered with the kubelet"); n < 2 {
				return fmt.Errorf("%s has registered %d times", pods.Items[i].Name, n)
			}
		}
		return errors.Join(s.allocatable(ctx, heResource, heDevices), s.allocatable(ctx, ptResource, int64(s.samples.ptemplate.Spec.MaxDev)))
	}); err != nil {
		return err
	}
	old := &corev1.Pod{}
	old.Namespace, old.Name = s.samples.ptemplate.Namespace, before[0]
	if err := s.Client.Delete(ctx, old, client.GracePeriodSeconds(1)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the old consumer is gone", func(ctx context.Context) error { return s.Gone(ctx, old) }); err != nil {
		return err
	}
	return s.ptemplateConsumed(ctx)
}

// operatorsDeleted deletes both objects. Nothing is left of them: not in the API, not in the
// kernel, not on the node.
func (s *steps) operatorsDeleted(ctx context.Context) error {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = heConsumer.Namespace, heConsumer.Name
	config, pt := s.samples.config.DeepCopy(), s.samples.ptemplate.DeepCopy()
	if err := errors.Join(s.Client.Delete(ctx, pod), s.Client.Delete(ctx, config), s.Client.Delete(ctx, pt)); err != nil {
		return err
	}
	return s.Eventually(ctx, "nothing of the two is left", func(ctx context.Context) error {
		if err := errors.Join(
			s.Gone(ctx, pod), s.Gone(ctx, config), s.Gone(ctx, pt),
			s.Gone(ctx, loads.Module(moduleOf(config), "", "x:1", heModule)),
			s.Gone(ctx, loads.Module(client.ObjectKeyFromObject(pt), "", "x:1", ptModule)),
			s.None(ctx, &appsv1.DaemonSetList{}, config.Namespace), s.None(ctx, &corev1.PodList{}, config.Namespace),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.ReadyLabel(config.Namespace, moduleOf(config).Name), false),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.ReadyLabel(pt.Namespace, pt.Name), false),
			s.allocatable(ctx, heResource, 0), s.allocatable(ctx, ptResource, 0),
		); err != nil {
			return err // the console costs the node time
		}
		return errors.Join(
			s.InKernel(ctx, artifacts.Linux61, heModule, false), s.InKernel(ctx, artifacts.Linux61, ptModule, false),
			s.Expect(ctx, artifacts.Linux61, "ls /var/run/cdi | wc -l", "0"),
			s.Expect(ctx, artifacts.Linux61, "dmesg | grep -c 'he_sample_kernel_module: goodbye'", "1"),
		)
	})
}
