// SPDX-License-Identifier: Apache-2.0

//go:build linux

package operators

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	deviceconfig "github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	ptemplate "github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/kit"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

const (
	heModule, ptModule     = "he_sample_kernel_module", "ptemplate_char_dev"
	heResource, ptResource = "example.com/he-sample", "example.com/ptemplate"
	// heDevices are what he_sample_kernel_module makes.
	heDevices = 2
)

// samples are the device operators' own, applied as they are: nodes find every registry's name
// here.
type samples struct {
	config    deviceconfig.DeviceConfig
	ptemplate ptemplate.Ptemplate
}

// Questions are for whoever looks at a failed step.
var Questions = [][]string{
	{"get", "deviceconfigs,ptemplates", "-A", "-o", "yaml"},
	{"-n", "deviceconfig-operator-system", "logs", "deployment/deviceconfig-operator-controller-manager", "--tail=40"},
	{"-n", "ptemplate-operator-system", "logs", "deployment/ptemplate-operator-controller-manager", "--tail=40"},
	{"-n", "default", "logs", "-l", v1beta1.RoleLabel, "--tail=40"},
}

// moduleOf is the Module of a DeviceConfig; a Ptemplate's is called as itself.
func moduleOf(d *deviceconfig.DeviceConfig) client.ObjectKey {
	return client.ObjectKey{Namespace: d.Namespace, Name: d.Name + "-module"}
}

func (s *steps) operatorSource(parts ...string) string {
	return filepath.Join(append([]string{s.Cache.Repository(), "config", "operators"}, parts...)...)
}

// The samples' files, and what is read of the last document of each.
const (
	deviceConfigSample = "deviceconfig/samples/deviceconfig_full.yaml"
	ptemplateSample    = "ptemplate/samples/pt_v1alpha1_ptemplate.yaml"
)

func (s *steps) readSample(file string, into client.Object) error {
	text, err := os.ReadFile(s.operatorSource(file))
	if err != nil {
		return err
	}
	documents := strings.Split(string(text), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if into.GetNamespace() == "" {
		into.SetNamespace("default")
	}
	return nil
}

// deployOperators does what an administrator does by `make deploy OPERATOR=…`: the manifests as
// they are, with images that the registry has.
func (s *steps) deployOperators(ctx context.Context) error {
	for _, operator := range []string{"deviceconfig", "ptemplate"} {
		if err := s.PushProgram(ctx, operator+"-operator"); err != nil {
			return err
		}
		if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", s.operatorSource(operator, "default")); err != nil {
			return err
		}
	}
	if err := errors.Join(
		s.readSample(deviceConfigSample, &s.samples.config), s.readSample(ptemplateSample, &s.samples.ptemplate),
		s.Namespace(ctx, loads.Restricted, "restricted"), s.Retag(ctx, "sample-device-plugin", "1.0"), s.Retag(ctx, "sample-consumer", "1.0"),
	); err != nil {
		return err
	}
	return s.Eventually(ctx, "both operators are available", func(ctx context.Context) error {
		var errs []error
		for _, operator := range []string{"deviceconfig", "ptemplate"} {
			d := &appsv1.Deployment{}
			name := operator + "-operator"
			err := s.Client.Get(ctx, client.ObjectKey{Namespace: name + "-system", Name: name + "-controller-manager"}, d)
			if err == nil && d.Status.AvailableReplicas == 0 {
				err = fmt.Errorf("%s is not available", d.Name)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// pushDriver compiles a sample kernel module and pushes it as an image, the registry's name in
// which is any.
func (s *steps) pushDriver(ctx context.Context, source, image string) error {
	_, repository, _ := strings.Cut(image, "/")
	_, err := s.PushModules(ctx, artifacts.Linux61, s.Source(source), repository, nil)
	return err
}

// choose puts the labels of a selector on the first node.
func (s *steps) choose(ctx context.Context, labels map[string]string) error {
	n := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, n); err != nil {
		return err
	}
	before := n.DeepCopy()
	maps.Copy(n.Labels, labels)
	return s.Client.Patch(ctx, n, client.MergeFrom(before))
}

// deviceConfigReady applies the DeviceConfig sample.
func (s *steps) deviceConfigReady(ctx context.Context) error {
	want := &s.samples.config
	if err := s.pushDriver(ctx, "he-sample", want.Spec.DriverImage+":"+want.Spec.DriverVersion+"-"+suite.TagOf(s.Release())); err != nil {
		return err
	}
	if err := s.choose(ctx, want.Spec.NodeSelector); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-f", s.operatorSource(deviceConfigSample)); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(want)
	if err := s.Eventually(ctx, "the DeviceConfig is Ready, and its devices are offered", func(ctx context.Context) error {
		now := &deviceconfig.DeviceConfig{}
		return errors.Join(s.Client.Get(ctx, key, now), operatorReady(now), s.allocatable(ctx, heResource, heDevices))
	}); err != nil {
		return err
	}
	return errors.Join(
		s.Ready(ctx, artifacts.Linux61, moduleOf(want), heModule),
		s.Expect(ctx, artifacts.Linux61, "dmesg | grep -c 'he_sample_kernel_module: hello'", "1"),
	)
}

// operatorReady checks the two conditions of a device operator's object.
func operatorReady(o kit.Object) error {
	conditions := *o.Conditions()
	for condition, status := range map[string]metav1.ConditionStatus{kit.ConditionReady: metav1.ConditionTrue,
		kit.ConditionErrored: metav1.ConditionFalse} {
		c := meta.FindStatusCondition(conditions, condition)
		if c == nil || c.Status != status || c.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("%s: condition %s is %+v instead of %s", client.ObjectKeyFromObject(o), condition, c, status)
		}
	}
	return nil
}

// allocatable checks how many devices of a resource the first node has for pods.
func (s *steps) allocatable(ctx context.Context, name corev1.ResourceName, want int64) error {
	n := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, n); err != nil {
		return err
	}
	if q := n.Status.Allocatable[name]; q.Value() != want {
		return fmt.Errorf("allocatable %s is %s instead of %d", name, q.String(), want)
	}
	return nil
}

// heConsumer is an unprivileged pod with both devices of the DeviceConfig.
var heConsumer = client.ObjectKey{Namespace: loads.Restricted, Name: "he-consumer"}

func (s *steps) deviceConfigConsumed(ctx context.Context) error {
	spec := loads.RestrictedPod()
	spec.DNSPolicy = corev1.DNSDefault
	grace := int64(1)
	spec.TerminationGracePeriodSeconds = &grace
	c := &spec.Containers[0]
	c.Image = strings.Replace(c.Image, "sample-reader:dev", "sample-consumer:1.0", 1)
	c.Args = []string{"--prefix=he_sample", "--interval=2s"}
	c.Resources.Limits = corev1.ResourceList{heResource: *resource.NewQuantity(heDevices, resource.DecimalSI)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: heConsumer.Namespace, Name: heConsumer.Name}, Spec: spec}
	if err := s.Client.Create(ctx, pod); err != nil {
		return err
	}
	return s.Eventually(ctx, "a pod reads the DeviceConfig's devices", func(ctx context.Context) error {
		return s.printed(ctx, heConsumer, `/dev/he_sample0: "hello 0\n"`, `/dev/he_sample1: "hello 1\n"`)
	})
}

// printed checks that a pod's output has these lines.
func (s *steps) printed(ctx context.Context, pod client.ObjectKey, lines ...string) error {
	output, err := s.Core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if !strings.Contains("\n"+string(output), "\n"+line+"\n") {
			return fmt.Errorf("%s printed %q, without %s", pod, output, line)
		}
	}
	return nil
}

// ptemplateReady applies the Ptemplate sample.
func (s *steps) ptemplateReady(ctx context.Context) error {
	want := &s.samples.ptemplate
	driver := strings.Replace(ptemplate.DefaultDriverImage, "${KERNEL_FULL_VERSION}", suite.TagOf(s.Release()), 1)
	if err := s.pushDriver(ctx, "ptemplate-char-dev", driver); err != nil {
		return err
	}
	if err := s.choose(ctx, want.Spec.Selector); err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Spec.ImageRepoSecret.Name},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}
	if err := s.Client.Create(ctx, secret); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-f", s.operatorSource(ptemplateSample)); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(want)
	if err := s.Eventually(ctx, "the Ptemplate is Ready, and its devices are offered", func(ctx context.Context) error {
		now := &ptemplate.Ptemplate{}
		return errors.Join(s.Client.Get(ctx, key, now), operatorReady(now), s.allocatable(ctx, ptResource, int64(want.Spec.MaxDev)))
	}); err != nil {
		return err
	}
	return errors.Join(
		s.Ready(ctx, artifacts.Linux61, key, ptModule),
		s.Expect(ctx, artifacts.Linux61, "cd /sys/module/ptemplate_char_dev/parameters; cat max_dev default_msg",
			fmt.Sprintf("%d\n%s", want.Spec.MaxDev, want.Spec.DefaultMsg)),
	)
}

// consumers are the pods of the Ptemplate's DaemonSet, from the API and not from its status.
func (s *steps) consumers(ctx context.Context) ([]string, error) {
	sample := &s.samples.ptemplate
	set := &appsv1.DaemonSet{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: sample.Namespace, Name: sample.Name + "-consumer"}, set); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(sample.Namespace)); err != nil {
		return nil, err
	}
	var names []string
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], set) && pods.Items[i].DeletionTimestamp == nil && loads.IsReady(&pods.Items[i]) {
			names = append(names, pods.Items[i].Name)
		}
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("%d consumers run instead of 1 on the one node", len(names))
	}
	return names, nil
}
