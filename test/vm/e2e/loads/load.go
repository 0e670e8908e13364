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

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// Restricted is the namespace of Modules, under that Pod Security.
	Restricted = "e2e-restricted"
	// Sample is the name of our own kernel module.
	Sample    = "drover_sample"
	sampleTag = "kmods/drover-sample:1.0-"
)

var (
	// Loader is the Module of most groups.
	Loader  = client.ObjectKey{Namespace: Restricted, Name: "loader"}
	missing = client.ObjectKey{Namespace: Restricted, Name: "missing"}
)

// Source is the folder of a sample kernel module.
func (s *Steps) Source(name string) string {
	return filepath.Join(s.Cache.Repository(), "samples", "kmods", name)
}

// tag is the sample's tag for a kernel, as the variable KERNEL_FULL_VERSION gives it.
func tag(release string) string { return sampleTag + strings.ReplaceAll(release, "+", "_") }

// Module asks for a kernel module on the nodes of one series, or on all when series is empty.
func Module(key client.ObjectKey, series artifacts.Series, image, name string, parameters ...string) *v1beta1.Module {
	chosen := map[string]string{corev1.LabelOSStable: "linux"}
	if series != "" {
		chosen = map[string]string{corev1.LabelHostname: suite.NodeName(series)}
	}
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: v1beta1.ModuleSpec{
			Selector: chosen,
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: name, Parameters: parameters},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: `^6\.`, ContainerImage: image}},
			}},
		},
	}
}

// LoadModule is step a.
func (s *Steps) LoadModule(ctx context.Context) error {
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil {
		return err
	}
	release := s.Images.Kernels[artifacts.Linux61].Release
	if _, err := s.PushModules(ctx, artifacts.Linux61, s.Source("drover-sample"), tag(release), nil); err != nil {
		return err
	}
	image := registry.Host + "/" + sampleTag + "${KERNEL_FULL_VERSION}"
	if s.Breaks == "image" {
		image += "-wrong"
	}
	m := Module(Loader, artifacts.Linux61, image, Sample, "devices=2", "greeting=hello")
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, Loader, Sample)
	}); err != nil {
		return err
	}
	return errors.Join(
		s.Expect(ctx, artifacts.Linux61, "cat /sys/module/drover_sample/parameters/devices /sys/module/drover_sample/parameters/greeting",
			"2\nhello"),
		s.Expect(ctx, artifacts.Linux61, "ls /dev/drover_sample0 /dev/drover_sample1", "/dev/drover_sample0\n/dev/drover_sample1"),
		s.Expect(ctx, artifacts.Linux61, suite.Loads, "1"),
	)
}

// carrierGone: what the API server's event says was created is not there any more.
func (s *Steps) carrierGone(ctx context.Context) error {
	if err := s.CarrierFree(ctx); err != nil {
		return err
	}
	// It did run, in this namespace: its containers' start is among the events.
	events, err := s.Core.CoreV1().Events(Restricted).List(ctx, metav1.ListOptions{FieldSelector: "reason=Started"})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		if strings.HasPrefix(e.InvolvedObject.Name, v1beta1.CarrierPrefix) {
			return nil
		}
	}
	return errors.New("no event tells of a carrier that started")
}

// CarrierFree waits until no carrier is left.
func (s *Steps) CarrierFree(ctx context.Context) error {
	return s.Eventually(ctx, "no carrier is left", func(ctx context.Context) error {
		pods, err := s.Carriers(ctx, Restricted)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("carrier %s is still there", pods[0].Name)
		}
		return err
	})
}

// carrierSealed keeps a carrier in place, by an image that does not exist, and attacks it as a user
// with the stock role edit.
func (s *Steps) carrierSealed(ctx context.Context) error {
	if err := s.Client.Create(ctx, Module(missing, artifacts.Linux61, registry.Host+"/kmods/none:1", "none")); err != nil {
		return err
	}
	var carrier corev1.Pod
	if err := s.Eventually(ctx, "a carrier waits for an image that does not exist, and the Module says so", func(ctx context.Context) error {
		pods, err := s.Carriers(ctx, Restricted)
		if err != nil || len(pods) == 0 {
			return errors.Join(err, errors.New("no carrier"))
		}
		carrier = pods[0]
		return s.ConditionIs(ctx, missing, v1beta1.ConditionLoaded, "False", v1beta1.ReasonImageNotFound)
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: Restricted, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}},
	}
	if err := s.Client.Create(ctx, binding); err != nil {
		return err
	}
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "mallory", Groups: []string{"system:authenticated"}}
	mallory, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		return err
	}
	if err := s.attack(ctx, mallory, config, &carrier); err != nil {
		return err
	}
	if err := s.Client.Delete(ctx, Module(missing, "", "x:1", "none")); err != nil {
		return err
	}
	return s.CarrierFree(ctx)
}

// attack tries what the role edit allows on other pods. Each must be refused by the sealing policy,
// by its name.
func (s *Steps) attack(ctx context.Context, mallory client.Client, config *rest.Config, carrier *corev1.Pod) error {
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Restricted, Name: "own"}, Spec: RestrictedPod()}
	if err := s.Eventually(ctx, "the role edit can create other pods", func(ctx context.Context) error {
		return mallory.Create(ctx, own.DeepCopy())
	}); err != nil {
		return err
	}
	spoof := own.DeepCopy()
	spoof.Name = v1beta1.CarrierPrefix + "spoof"
	generated := own.DeepCopy()
	generated.Name, generated.GenerateName = "", v1beta1.CarrierPrefix
	evil := client.RawPatch("application/strategic-merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":"evil:1"}]}}`, carrier.Spec.Containers[0].Name))
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	exec := core.CoreV1().RESTClient().Post().Resource("pods").Namespace(Restricted).Name(carrier.Name).SubResource("exec").Param("command",
		"sh")
	for what, err := range map[string]error{
		"create by name":         mallory.Create(ctx, spoof),
		"create by generateName": mallory.Create(ctx, generated),
		"patch of the image":     mallory.Patch(ctx, carrier.DeepCopy(), evil),
		"exec":                   exec.Do(ctx).Error(),
	} {
		if err == nil || !strings.Contains(err.Error(), "drover-carriers") {
			return fmt.Errorf("%s of a carrier is not refused by the policy drover-carriers: %w", what, errors.Join(errors.New("answer"), err))
		}
	}
	return mallory.Delete(ctx, own, client.GracePeriodSeconds(0))
}

// RestrictedPod runs under Pod Security restricted.
func RestrictedPod() corev1.PodSpec {
	yes, no := true, false
	return corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "main", Image: registry.Host + "/drover/sample-reader:dev",
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}

// withoutPolicy takes the sealing policy's binding away: nothing may be delivered until it is back.
func (s *Steps) withoutPolicy(ctx context.Context) error {
	key := client.ObjectKey{Namespace: Restricted, Name: "unsealed"}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: "drover-carriers"}, binding); err != nil {
		return err
	}
	if err := s.Client.Delete(ctx, binding); err != nil {
		return err
	}
	image := registry.Host + "/" + tag(s.Images.Kernels[artifacts.Linux61].Release)
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, "drover_sample_user")); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the Module says that the policy is missing", func(ctx context.Context) error {
		return s.ConditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonDeliveryRefused)
	}); err != nil {
		return err
	}
	if err := s.Throughout(ctx, 5*time.Second, func(ctx context.Context) error {
		pods, err := s.Carriers(ctx, Restricted)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("carrier %s was made without the policy", pods[0].Name)
		}
		return errors.Join(err, s.InKernel(ctx, artifacts.Linux61, "drover_sample_user", false))
	}); err != nil {
		return err
	}
	back := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, Spec: binding.Spec}
	if err := s.Client.Create(ctx, back); err != nil {
		return err
	}
	return s.loadsAndGoes(ctx, key, "drover_sample_user")
}

// loadsAndGoes waits until a Module is ready, deletes it and waits until it is out of the kernel.
func (s *Steps) loadsAndGoes(ctx context.Context, key client.ObjectKey, name string) error {
	if err := s.Eventually(ctx, key.Name+" is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

// Remove deletes a Module, and waits until its kernel module is gone.
func (s *Steps) Remove(ctx context.Context, key client.ObjectKey, name string) error {
	m := Module(key, "", "x:1", name)
	if err := s.Client.Delete(ctx, m); err != nil {
		return err
	}
	return s.Eventually(ctx, key.Name+" is gone", func(ctx context.Context) error {
		if err := s.Gone(ctx, m); err != nil {
			return err
		}
		return s.InKernel(ctx, artifacts.Linux61, name, false)
	})
}

// initContainer delivers again with image volumes off, from an image that has a shell and cp, as
// upstream's contract says.
func (s *Steps) initContainer(ctx context.Context) error {
	if err := s.Remove(ctx, Loader, Sample); err != nil {
		return err
	}
	if err := s.deliveryMode(ctx, "initContainer"); err != nil {
		return err
	}
	image, err := s.pushCopyable(ctx)
	if err != nil {
		return err
	}
	if err := s.copied(ctx, image); err != nil {
		return err
	}
	if err := s.loadsAndGoes(ctx, copiedModule, Sample); err != nil {
		return err
	}
	return s.deliveryMode(ctx, "auto")
}

// copiedModule is delivered by an init container.
var copiedModule = client.ObjectKey{Namespace: Restricted, Name: "copied"}

// pushCopyable makes an image that can copy its files itself.
func (s *Steps) pushCopyable(ctx context.Context) (image string, err error) {
	release := s.Images.Kernels[artifacts.Linux61].Release
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", err
	}
	tools := map[string]registry.File{"/bin/busybox": registry.Program(busybox)}
	for _, applet := range []string{"sh", "cp", "mkdir"} {
		tools["/bin/"+applet] = registry.File{Link: "busybox"}
	}
	return s.PushModules(ctx, artifacts.Linux61, s.Source("drover-sample"), tag(release)+"-tools", tools)
}

// copied asks for a module of the image, and waits until an init container brought it and it is
// live.
func (s *Steps) copied(ctx context.Context, image string) error {
	if err := s.Client.Create(ctx, Module(copiedModule, artifacts.Linux61, image, Sample)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "a carrier copies by an init container", func(ctx context.Context) error {
		pods, err := s.Carriers(ctx, Restricted)
		for _, p := range pods {
			if len(p.Spec.InitContainers) == 1 && p.Spec.InitContainers[0].Image == image {
				return nil
			}
		}
		return errors.Join(err, errors.New("no carrier with an init container of the image"))
	}); err != nil {
		return err
	}
	return s.Eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, copiedModule, Sample)
	})
}

// deliveryMode sets the operator's flag and waits for the new operator.
func (s *Steps) deliveryMode(ctx context.Context, mode string) error {
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--delivery-mode=%s"}]`, mode)
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "patch", "deployment", "drover-operator", "--type=json", "-p",
		patch); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "rollout", "status", "--timeout=90s",
		"deployment/drover-operator"); err != nil {
		return err
	}
	return s.operators(ctx, 1)
}

// operators waits until there are so many operator pods.
func (s *Steps) operators(ctx context.Context, want int) error {
	return s.Eventually(ctx, fmt.Sprintf("there are %d operators", want), func(ctx context.Context) error {
		var pods corev1.PodList
		err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": "drover-operator"})
		if err == nil && len(pods.Items) != want {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
}
