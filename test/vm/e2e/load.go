// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

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
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	restricted = "e2e-restricted"
	sample     = "drover_sample"
	sampleTag  = "kmods/drover-sample:1.0-"
)

var (
	loader  = client.ObjectKey{Namespace: restricted, Name: "loader"}
	missing = client.ObjectKey{Namespace: restricted, Name: "missing"}
)

func readFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (s *suite) source(name string) string {
	return filepath.Join(s.cache.Repository(), "samples", "kmods", name)
}

// tag is the sample's tag for a kernel, as the variable KERNEL_FULL_VERSION gives it.
func tag(release string) string { return sampleTag + strings.ReplaceAll(release, "+", "_") }

// module asks for a kernel module on the nodes of one series, or on all when series is empty.
func module(key client.ObjectKey, series artifacts.Series, image, name string, parameters ...string) *v1beta1.Module {
	chosen := map[string]string{corev1.LabelOSStable: "linux"}
	if series != "" {
		chosen = map[string]string{corev1.LabelHostname: nodeName(series)}
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

// loadModule is step a.
func (s *suite) loadModule(ctx context.Context) error {
	if err := s.namespace(ctx, restricted, "restricted"); err != nil {
		return err
	}
	release := s.images.Kernels[artifacts.Linux61].Release
	if _, err := s.pushModules(ctx, artifacts.Linux61, s.source("drover-sample"), tag(release), nil); err != nil {
		return err
	}
	image := registry.Host + "/" + sampleTag + "${KERNEL_FULL_VERSION}"
	if s.breaks == "image" {
		image += "-wrong"
	}
	m := module(loader, artifacts.Linux61, image, sample, "devices=2", "greeting=hello")
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, loader, sample)
	}); err != nil {
		return err
	}
	return errors.Join(
		s.expect(ctx, artifacts.Linux61, "cat /sys/module/drover_sample/parameters/devices /sys/module/drover_sample/parameters/greeting", "2\nhello"),
		s.expect(ctx, artifacts.Linux61, "ls /dev/drover_sample0 /dev/drover_sample1", "/dev/drover_sample0\n/dev/drover_sample1"),
		s.expect(ctx, artifacts.Linux61, loads, "1"),
	)
}

// carrierGone: what the API server's event says was created is not there any more.
func (s *suite) carrierGone(ctx context.Context) error {
	if err := s.carrierFree(ctx); err != nil {
		return err
	}
	// It did run, in this namespace: its containers' start is among the events.
	events, err := s.core.CoreV1().Events(restricted).List(ctx, metav1.ListOptions{FieldSelector: "reason=Started"})
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

// carrierFree waits until no carrier is left.
func (s *suite) carrierFree(ctx context.Context) error {
	return s.eventually(ctx, "no carrier is left", func(ctx context.Context) error {
		pods, err := s.carriers(ctx, restricted)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("carrier %s is still there", pods[0].Name)
		}
		return err
	})
}

// carrierSealed keeps a carrier in place, by an image that does not exist, and attacks it as a user with the stock role edit.
func (s *suite) carrierSealed(ctx context.Context) error {
	if err := s.client.Create(ctx, module(missing, artifacts.Linux61, registry.Host+"/kmods/none:1", "none")); err != nil {
		return err
	}
	var carrier corev1.Pod
	if err := s.eventually(ctx, "a carrier waits for an image that does not exist, and the Module says so", func(ctx context.Context) error {
		pods, err := s.carriers(ctx, restricted)
		if err != nil || len(pods) == 0 {
			return errors.Join(err, errors.New("no carrier"))
		}
		carrier = pods[0]
		return s.conditionIs(ctx, missing, v1beta1.ConditionLoaded, "False", v1beta1.ReasonImageNotFound)
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: restricted, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}},
	}
	if err := s.client.Create(ctx, binding); err != nil {
		return err
	}
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "mallory", Groups: []string{"system:authenticated"}}
	mallory, err := client.New(config, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		return err
	}
	if err := s.attack(ctx, mallory, config, &carrier); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, module(missing, "", "x:1", "none")); err != nil {
		return err
	}
	return s.carrierFree(ctx)
}

// attack tries what the role edit allows on other pods. Each must be refused by the sealing policy, by its name.
func (s *suite) attack(ctx context.Context, mallory client.Client, config *rest.Config, carrier *corev1.Pod) error {
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: restricted, Name: "own"}, Spec: restrictedPod()}
	if err := s.eventually(ctx, "the role edit can create other pods", func(ctx context.Context) error {
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
	exec := core.CoreV1().RESTClient().Post().Resource("pods").Namespace(restricted).Name(carrier.Name).SubResource("exec").Param("command", "sh")
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

func restrictedPod() corev1.PodSpec {
	yes, no := true, false
	return corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "main", Image: registry.Host + "/drover/sample-reader:dev",
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}

// withoutPolicy takes the sealing policy's binding away: nothing may be delivered until it is back.
func (s *suite) withoutPolicy(ctx context.Context) error {
	key := client.ObjectKey{Namespace: restricted, Name: "unsealed"}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: "drover-carriers"}, binding); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, binding); err != nil {
		return err
	}
	image := registry.Host + "/" + tag(s.images.Kernels[artifacts.Linux61].Release)
	if err := s.client.Create(ctx, module(key, artifacts.Linux61, image, "drover_sample_user")); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the Module says that the policy is missing", func(ctx context.Context) error {
		return s.conditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonDeliveryRefused)
	}); err != nil {
		return err
	}
	if err := s.throughout(ctx, 5*time.Second, func(ctx context.Context) error {
		pods, err := s.carriers(ctx, restricted)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("carrier %s was made without the policy", pods[0].Name)
		}
		return errors.Join(err, s.inKernel(ctx, artifacts.Linux61, "drover_sample_user", false))
	}); err != nil {
		return err
	}
	back := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, Spec: binding.Spec}
	if err := s.client.Create(ctx, back); err != nil {
		return err
	}
	return s.loadsAndGoes(ctx, key, "drover_sample_user")
}

// loadsAndGoes waits until a Module is ready, deletes it and waits until it is out of the kernel.
func (s *suite) loadsAndGoes(ctx context.Context, key client.ObjectKey, name string) error {
	if err := s.eventually(ctx, key.Name+" is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	return s.remove(ctx, key, name)
}

func (s *suite) remove(ctx context.Context, key client.ObjectKey, name string) error {
	m := module(key, "", "x:1", name)
	if err := s.client.Delete(ctx, m); err != nil {
		return err
	}
	return s.eventually(ctx, key.Name+" is gone", func(ctx context.Context) error {
		if err := s.gone(ctx, m); err != nil {
			return err
		}
		return s.inKernel(ctx, artifacts.Linux61, name, false)
	})
}

// initContainer delivers again with image volumes off, from an image that has a shell and cp, as upstream's contract says.
func (s *suite) initContainer(ctx context.Context) error {
	if err := s.remove(ctx, loader, sample); err != nil {
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
	if err := s.loadsAndGoes(ctx, copiedModule, sample); err != nil {
		return err
	}
	return s.deliveryMode(ctx, "auto")
}

// copiedModule is delivered by an init container.
var copiedModule = client.ObjectKey{Namespace: restricted, Name: "copied"}

// pushCopyable makes an image that can copy its files itself.
func (s *suite) pushCopyable(ctx context.Context) (image string, err error) {
	release := s.images.Kernels[artifacts.Linux61].Release
	busybox, err := readFile("/bin/busybox")
	if err != nil {
		return "", err
	}
	tools := map[string]registry.File{"/bin/busybox": registry.Program(busybox)}
	for _, applet := range []string{"sh", "cp", "mkdir"} {
		tools["/bin/"+applet] = registry.File{Link: "busybox"}
	}
	return s.pushModules(ctx, artifacts.Linux61, s.source("drover-sample"), tag(release)+"-tools", tools)
}

// copied asks for a module of the image, and waits until an init container brought it and it is live.
func (s *suite) copied(ctx context.Context, image string) error {
	if err := s.client.Create(ctx, module(copiedModule, artifacts.Linux61, image, sample)); err != nil {
		return err
	}
	if err := s.eventually(ctx, "a carrier copies by an init container", func(ctx context.Context) error {
		pods, err := s.carriers(ctx, restricted)
		for _, p := range pods {
			if len(p.Spec.InitContainers) == 1 && p.Spec.InitContainers[0].Image == image {
				return nil
			}
		}
		return errors.Join(err, errors.New("no carrier with an init container of the image"))
	}); err != nil {
		return err
	}
	return s.eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, copiedModule, sample)
	})
}

// deliveryMode sets the operator's flag and waits for the new operator.
func (s *suite) deliveryMode(ctx context.Context, mode string) error {
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--delivery-mode=%s"}]`, mode)
	if _, err := s.kubectl(ctx, "-n", operatorNamespace, "patch", "deployment", "drover-operator", "--type=json", "-p", patch); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "-n", operatorNamespace, "rollout", "status", "--timeout=90s", "deployment/drover-operator"); err != nil {
		return err
	}
	return s.operators(ctx, 1)
}

// operators waits until there are so many operator pods.
func (s *suite) operators(ctx context.Context, want int) error {
	return s.eventually(ctx, fmt.Sprintf("there are %d operators", want), func(ctx context.Context) error {
		var pods corev1.PodList
		err := s.client.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": "drover-operator"})
		if err == nil && len(pods.Items) != want {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
}
