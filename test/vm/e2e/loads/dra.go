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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// claimFiles is, in a script on a node, how many claims the sample driver has prepared.
const claimFiles = "ls /var/run/cdi | grep -c claim || true"

// driven is the Module of samples/dradriver.
var driven = client.ObjectKey{Namespace: "default", Name: "drover-sample-dra"}

// claimant is a pod that claims a device of it.
var claimant = client.ObjectKey{Namespace: Restricted, Name: "claimant"}

func (s *Steps) draSource(name string) string {
	return filepath.Join(s.Cache.Repository(), "samples", "dradriver", name)
}

// driver applies the sample as its README says, with this registry's images.
func (s *Steps) driver(ctx context.Context) error {
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil {
		return err
	}
	if err := s.PushProgram(ctx, "sample-dra-driver"); err != nil {
		return err
	}
	release := s.Images.Kernels[artifacts.Linux61].Release
	if _, err := s.PushModules(ctx, artifacts.Linux61, s.Source("drover-sample"), tag(release), nil); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", s.draSource("rbac.yaml")); err != nil {
		return err
	}
	text, err := os.ReadFile(s.draSource("module.yaml"))
	if err != nil {
		return err
	}
	m := &v1beta1.Module{}
	if err := yaml.UnmarshalStrict(text, m); err != nil {
		return err
	}
	m.Spec.Selector = map[string]string{corev1.LabelHostname: suite.NodeName(artifacts.Linux61)}
	loader := &m.Spec.ModuleLoader.Container
	loader.KernelMappings[0] = v1beta1.KernelMapping{Regexp: `^6\.`, ContainerImage: registry.Host + "/" + sampleTag +
		"${KERNEL_FULL_VERSION}"}
	loader.Modprobe.Parameters = append(loader.Modprobe.Parameters, "greeting=hello")
	m.Spec.DRA.Container.Image = registry.Host + "/drover/sample-dra-driver:dev"
	return s.Client.Create(ctx, m)
}

// published is the first step: kernel module, driver, ResourceSlice, DeviceClass and status.
func (s *Steps) published(ctx context.Context) error {
	if err := s.driver(ctx); err != nil {
		return err
	}
	return s.Eventually(ctx, "the driver serves the node's devices", func(ctx context.Context) error {
		if err := s.Ready(ctx, artifacts.Linux61, driven, Sample); err != nil {
			return err
		}
		m, class := &v1beta1.Module{}, &resourcev1.DeviceClass{}
		if err := errors.Join(
			s.Client.Get(ctx, driven, m), s.Client.Get(ctx, client.ObjectKey{Name: "sample.drover.dev"}, class),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.DRAReadyLabel(driven.Namespace, driven.Name), true),
			s.offers(ctx, 2),
		); err != nil {
			return err
		}
		if m.Status.DRA.AvailableNumber != 1 || class.Labels[v1beta1.ModuleNameLabel] != m.Name ||
			class.Labels[v1beta1.ModuleNamespaceLabel] != m.Namespace {
			return fmt.Errorf("status.dra %+v, labels of the DeviceClass %v", m.Status.DRA, class.Labels)
		}
		return nil
	})
}

// offers counts the devices in the ResourceSlices of the sample driver.
func (s *Steps) offers(ctx context.Context, want int) error {
	var slices resourcev1.ResourceSliceList
	if err := s.Client.List(ctx, &slices); err != nil {
		return err
	}
	devices := 0
	for i := range slices.Items {
		if spec := &slices.Items[i].Spec; spec.Driver == "sample.drover.dev" && spec.NodeName != nil &&
			*spec.NodeName == suite.NodeName(artifacts.Linux61) {
			devices += len(spec.Devices)
		}
	}
	if devices != want {
		return fmt.Errorf("the node offers %d devices by DRA instead of %d", devices, want)
	}
	return nil
}

// claimed runs an unprivileged pod that claims a device and reads it again and again, without
// keeping it open between.
func (s *Steps) claimed(ctx context.Context) error {
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: Restricted, Name: "sample"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "sample.drover.dev"},
	}}
	if err := s.Client.Create(ctx, template); err != nil {
		return err
	}
	spec := RestrictedPod()
	spec.RestartPolicy, spec.DNSPolicy = corev1.RestartPolicyNever, corev1.DNSDefault
	grace := int64(1)
	spec.TerminationGracePeriodSeconds = &grace
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template.Name}}
	spec.Containers[0].Args = []string{"--interval=1s", "/dev/drover_sample*"}
	spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claimant.Namespace, Name: claimant.Name}, Spec: spec}
	if err := s.Client.Create(ctx, pod); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the pod reads the device that it claimed", s.reads); err != nil {
		return err
	}
	const environment = "grep -alE 'DEVICE_DROVER_SAMPLE[01]=/dev/drover_sample[01]' /proc/[0-9]*/environ 2>/dev/null | wc -l"
	return errors.Join(s.Expect(ctx, artifacts.Linux61, environment, "1"), s.Expect(ctx, artifacts.Linux61, claimFiles, "1"))
}

// reads checks that the claimant runs and has read one device within the last seconds.
func (s *Steps) reads(ctx context.Context) error {
	since := int64(4)
	output, err := s.Core.CoreV1().Pods(claimant.Namespace).GetLogs(claimant.Name, &corev1.PodLogOptions{SinceSeconds: &since}).DoRaw(ctx)
	if err != nil {
		return err
	}
	if lines := strings.Fields(string(output)); len(lines) < 2 || lines[0] != "hello" {
		return fmt.Errorf("the pod printed %q in the last seconds", output)
	}
	return nil
}

// keptForClaim deletes the Module: nothing goes but the DeviceClass while a claim is prepared.
func (s *Steps) keptForClaim(ctx context.Context) error {
	if err := s.Client.Delete(ctx, &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: driven.Namespace,
		Name: driven.Name}}); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the DeviceClass is gone", func(ctx context.Context) error {
		return s.Gone(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "sample.drover.dev"}})
	}); err != nil {
		return err
	}
	return s.Throughout(ctx, 15*time.Second, func(ctx context.Context) error {
		return errors.Join(s.InKernel(ctx, artifacts.Linux61, Sample, true), s.driverRuns(ctx), s.Expect(ctx, artifacts.Linux61, claimFiles, "1"))
	})
}

func (s *Steps) driverRuns(ctx context.Context) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(driven.Namespace), client.HasLabels{v1beta1.RoleLabel}); err != nil {
		return err
	}
	if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil || !IsReady(&pods.Items[0]) {
		return fmt.Errorf("%d driver pods, or the one is not ready", len(pods.Items))
	}
	return nil
}

// goneAfterClaim ends the pod: the claim is unprepared, then driver, kernel module and Module go.
func (s *Steps) goneAfterClaim(ctx context.Context) error {
	if err := s.reads(ctx); err != nil {
		return err
	}
	if err := s.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claimant.Namespace,
		Name: claimant.Name}}); err != nil {
		return err
	}
	return s.Eventually(ctx, "nothing of the Module is left", func(ctx context.Context) error {
		return errors.Join(
			s.Gone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claimant.Namespace, Name: claimant.Name}}),
			s.Gone(ctx, &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: driven.Namespace, Name: driven.Name}}),
			s.InKernel(ctx, artifacts.Linux61, Sample, false),
			s.Expect(ctx, artifacts.Linux61, claimFiles, "0"),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.ReadyLabel(driven.Namespace, driven.Name), false),
			s.LabelIs(ctx, artifacts.Linux61, v1beta1.DRAReadyLabel(driven.Namespace, driven.Name), false),
			s.None(ctx, &appsv1.DaemonSetList{}, driven.Namespace), s.None(ctx, &corev1.PodList{}, driven.Namespace),
		)
	})
}
