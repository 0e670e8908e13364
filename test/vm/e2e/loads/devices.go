// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// Devices holds a namespace in which pods may mount host paths: device plugins need the kubelet's
// socket folder.
const Devices = "e2e-devices"

var plugged = client.ObjectKey{Namespace: Devices, Name: "plugged"}

const resourceName = "drover.dev/sample"

// devicePlugin is step b.
func (s *Steps) devicePlugin(ctx context.Context) error {
	if err := s.Namespace(ctx, Devices, "privileged"); err != nil {
		return err
	}
	m := Module(plugged, artifacts.Linux61, registry.Host+"/"+sampleTag+"${KERNEL_FULL_VERSION}", Sample, "devices=2", "greeting=hello")
	m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{
		Container: v1beta1.WorkloadContainer{
			Image:        registry.Host + "/drover/sample-device-plugin:dev",
			Args:         []string{"--resource=" + resourceName, "--device-glob=/dev/drover_sample*", "--host-root=/host"},
			VolumeMounts: []corev1.VolumeMount{{Name: "dev", MountPath: "/host/dev", ReadOnly: true}, {Name: "cdi", MountPath: "/var/run/cdi"}},
		},
		Volumes: []corev1.Volume{hostFolder("dev", "/dev", corev1.HostPathDirectory),
			hostFolder("cdi", "/var/run/cdi", corev1.HostPathDirectoryOrCreate)},
	}
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the node offers the devices", func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, n); err != nil {
			return err
		}
		if q := n.Status.Allocatable[resourceName]; q.Value() != 2 {
			return fmt.Errorf("allocatable %s is %s instead of 2", resourceName, q.String())
		}
		return s.Ready(ctx, artifacts.Linux61, plugged, Sample)
	}); err != nil {
		return err
	}
	return s.readDevice(ctx)
}

func hostFolder(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// readDevice runs an unprivileged pod that asks for one device and prints what it holds.
func (s *Steps) readDevice(ctx context.Context) error {
	spec := RestrictedPod()
	spec.RestartPolicy, spec.DNSPolicy = corev1.RestartPolicyNever, corev1.DNSDefault
	spec.Containers[0].Args = []string{"--once", "/dev/drover_sample*"}
	spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceName: resource.MustParse("1")}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Restricted, Name: "reader"}, Spec: spec}
	if err := s.Client.Create(ctx, pod); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the reader ends well", func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("the reader is %s", pod.Status.Phase)
		}
		return nil
	}); err != nil {
		return err
	}
	output, err := s.Core.CoreV1().Pods(Restricted).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err
	}
	if text := string(output); text != "hello 0\n" && text != "hello 1\n" {
		return fmt.Errorf("the reader printed %q", text)
	}
	return s.Client.Delete(ctx, pod)
}

// replacePlugin is step c.
func (s *Steps) replacePlugin(ctx context.Context) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	if err := s.Retag(ctx, "sample-device-plugin", "dev2"); err != nil {
		return err
	}
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, plugged, m); err != nil {
		return err
	}
	changed := m.DeepCopy()
	changed.Spec.DevicePlugin.Container.Image = registry.Host + "/drover/sample-device-plugin:dev2"
	if err := s.Client.Patch(ctx, changed, client.MergeFrom(m)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "a new plugin pod is ready", func(ctx context.Context) error {
		after, err := s.state(ctx)
		if err != nil {
			return err
		}
		if after.plugin == before.plugin || after.image != changed.Spec.DevicePlugin.Container.Image {
			return fmt.Errorf("the plugin's pod is still %s with %s", after.plugin, after.image)
		}
		return s.Ready(ctx, artifacts.Linux61, plugged, Sample)
	}); err != nil {
		return err
	}
	after, err := s.state(ctx)
	if err != nil {
		return err
	}
	if after.config != before.config || after.loads != before.loads {
		return fmt.Errorf("NodeModulesConfig went from version %s to %s, loads from %s to %s", before.config, after.config, before.loads,
			after.loads)
	}
	return nil
}

// state is what a change of the plugin may and may not touch.
type state struct{ plugin, image, config, loads string }

func (s *Steps) state(ctx context.Context) (state, error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(Devices), client.HasLabels{v1beta1.RoleLabel}); err != nil {
		return state{}, err
	}
	ready := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && IsReady(&p) })
	if ready < 0 {
		// Whoever waits for one must not ask the node meanwhile: commands take time of the one processor
		// that starts the pod.
		return state{}, errors.New("no plugin pod is ready")
	}
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, nmc); err != nil {
		return state{}, err
	}
	count, err := s.Nodes[artifacts.Linux61].Output(ctx, suite.Loads)
	if err != nil {
		return state{}, err
	}
	p := &pods.Items[ready]
	return state{plugin: string(p.UID), image: p.Spec.Containers[0].Image, config: nmc.ResourceVersion, loads: count}, nil
}

// IsReady reports whether a pod is ready.
func IsReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// configDeleted is the first half of step e.
func (s *Steps) configDeleted(ctx context.Context) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: suite.NodeName(artifacts.Linux61)}}
	if err := s.Client.Delete(ctx, nmc); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the NodeModulesConfig is back whole", func(ctx context.Context) error {
		back := &v1beta1.NodeModulesConfig{}
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(nmc), back); err != nil {
			return err
		}
		if len(back.Spec.Modules) != 1 || len(back.Status.Modules) != 1 || len(back.Status.Attempts) != 0 || len(back.OwnerReferences) != 1 {
			return fmt.Errorf("it has %d orders, %d live modules, %d attempts, %d owners", len(back.Spec.Modules), len(back.Status.Modules),
				len(back.Status.Attempts), len(back.OwnerReferences))
		}
		return s.Ready(ctx, artifacts.Linux61, plugged, Sample)
	}); err != nil {
		return err
	}
	return s.Throughout(ctx, 5*time.Second, func(ctx context.Context) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, Sample, true), s.Expect(ctx, artifacts.Linux61, suite.Loads, before.loads))
	})
}

// moduleDeleted is the second half of step e.
func (s *Steps) moduleDeleted(ctx context.Context) error {
	if err := s.Remove(ctx, plugged, Sample); err != nil {
		return err
	}
	return s.Eventually(ctx, "nothing of the Module is left", func(ctx context.Context) error {
		errs := []error{
			s.Gone(ctx, &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: suite.NodeName(artifacts.Linux61)}}),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.ReadyLabel(plugged.Namespace, plugged.Name), false),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.DevicePluginReadyLabel(plugged.Namespace, plugged.Name), false),
		}
		for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &corev1.PodList{}} {
			errs = append(errs, s.None(ctx, list, Devices))
		}
		var accounts corev1.ServiceAccountList
		if err := s.Client.List(ctx, &accounts, client.InNamespace(Devices)); err != nil {
			return err
		}
		for _, a := range accounts.Items {
			if a.Name != "default" {
				errs = append(errs, fmt.Errorf("ServiceAccount %s is left", a.Name))
			}
		}
		return errors.Join(errs...)
	})
}

// None is an error while there are such pods.
func (s *Steps) None(ctx context.Context, list client.ObjectList, namespace string) error {
	if err := s.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	switch l := list.(type) {
	case *appsv1.DaemonSetList:
		if len(l.Items) > 0 {
			return fmt.Errorf("DaemonSet %s is left", l.Items[0].Name)
		}
	case *corev1.PodList:
		if len(l.Items) > 0 {
			return fmt.Errorf("pod %s is left", l.Items[0].Name)
		}
	}
	return nil
}
