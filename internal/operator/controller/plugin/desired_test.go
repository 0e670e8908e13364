// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const agentImage = "example.com/drover-agent:v1"

func module(change ...func(*kmmv1beta1.Module)) *kmmv1beta1.Module {
	m := &kmmv1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", UID: "module-uid"},
		Spec: kmmv1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/nic": "yes"},
			ModuleLoader: &kmmv1beta1.ModuleLoaderSpec{Container: kmmv1beta1.ModuleLoaderContainerSpec{
				ContainerImage: "example.com/nic:$KERNEL_VERSION",
				KernelMappings: []kmmv1beta1.KernelMapping{{Regexp: ".+"}},
				Modprobe:       kmmv1beta1.ModprobeSpec{ModuleName: "nic_kmod"},
			}},
			DevicePlugin: &kmmv1beta1.DevicePluginSpec{
				Container: kmmv1beta1.WorkloadContainer{Image: "example.com/plugin:v1"},
			},
		},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func everything(m *kmmv1beta1.Module) {
	m.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "registry"}
	m.Spec.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "registry"}}
	m.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/nic", Operator: corev1.TolerationOpExists}}
	m.Spec.DevicePlugin = &kmmv1beta1.DevicePluginSpec{
		ImagePullSecrets:             []corev1.LocalObjectReference{{Name: "plugins"}},
		ServiceAccountName:           "own",
		AutomountServiceAccountToken: ptr.To(false),
		Volumes: []corev1.Volume{{
			Name: "config", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}},
		InitContainer: &kmmv1beta1.WorkloadContainer{Image: "example.com/init:v1", Command: []string{"/prepare"}},
		Container: kmmv1beta1.WorkloadContainer{
			Image:           "example.com/plugin:v2",
			ImagePullPolicy: corev1.PullAlways,
			Command:         []string{"/plugin"},
			Args:            []string{"--verbose"},
			Env:             []corev1.EnvVar{{Name: "MODE", Value: "fast"}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
		},
	}
}

func driver(m *kmmv1beta1.Module) {
	m.Spec.DevicePlugin = nil
	m.Spec.DRA = &kmmv1beta1.DRASpec{
		Container: kmmv1beta1.WorkloadContainer{Image: "example.com/driver:v1"}, DriverName: "nic.example.com",
		DeviceClasses: []kmmv1beta1.DeviceClassSpec{{
			Name:      "nic.example.com",
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "nic.example.com"`}}},
		}},
	}
}

// TestHostPortIsTheModulesOwn: with the node's network, two drivers on a node need two ports, and
// the probe asks the one that the driver is told.
func TestHostPortIsTheModulesOwn(t *testing.T) {
	ports := map[int32]bool{}
	for _, name := range []string{"nic", "gpu"} {
		daemonSet, err := plugin.DaemonSet(module(driver, func(m *kmmv1beta1.Module) { m.Name, m.Spec.DRA.HostNetwork = name, true }), agentImage)
		if err != nil {
			t.Fatal(err)
		}
		main := daemonSet.Spec.Template.Spec.Containers[0]
		port := main.LivenessProbe.GRPC.Port
		told := corev1.EnvVar{Name: "HEALTHCHECK_PORT", Value: strconv.Itoa(int(port))}
		if port < 20000 || port >= 30000 || !slices.Contains(main.Env, told) {
			t.Errorf("%s: port %d, environment %v", name, port, main.Env)
		}
		ports[port] = true
	}
	if len(ports) != 2 {
		t.Errorf("two Modules share a port: %v", ports)
	}
}

func TestDaemonSetGolden(t *testing.T) {
	cases := map[string]*kmmv1beta1.Module{
		"minimal":    module(),
		"everything": module(everything),
		"no-loader":  module(func(m *kmmv1beta1.Module) { m.Spec.ModuleLoader = nil }),
		"dra":        module(driver),
		"dra-everything": module(everything, func(m *kmmv1beta1.Module) {
			p := m.Spec.DevicePlugin
			p.Container.Env = append(p.Container.Env, corev1.EnvVar{Name: "CDI_ROOT", Value: "/etc/cdi"})
			m.Spec.DRA = &kmmv1beta1.DRASpec{
				Container: p.Container, InitContainer: p.InitContainer, DriverName: "nic.example.com", HostNetwork: true,
				ServiceAccountName: p.ServiceAccountName, AutomountServiceAccountToken: p.AutomountServiceAccountToken, Volumes: p.Volumes,
			}
			m.Spec.DevicePlugin = nil
		}),
		"ready-when": module(func(m *kmmv1beta1.Module) {
			m.Spec.StartupTaint = "example.com/starting"
			m.Spec.ModuleLoader.Container.ReadyWhen = []kmmv1beta1.ReadyCheck{
				{DeviceNode: "/dev/nic*"}, {Sysfs: &kmmv1beta1.SysfsCheck{Path: "/sys/module/nic_kmod/version", Value: "2"}},
				{Sysfs: &kmmv1beta1.SysfsCheck{Path: "/sys/class/net/nic0/operstate", Value: "up"}}, // a pod has its own
				{Sysfs: &kmmv1beta1.SysfsCheck{Path: "/sys/class/nic"}}, {DeviceNode: "/dev/snd/nic"}, {Command: []string{"/probe", "--quick"}},
			}
		}),
	}
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			daemonSet, err := plugin.DaemonSet(given, agentImage)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(daemonSet)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("DaemonSet (-want +got); -update rewrites:\n%s", diff)
			}
		})
	}
}

func TestSocketMountIsWritable(t *testing.T) {
	daemonSet, err := plugin.DaemonSet(module(everything), agentImage)
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.VolumeMount{
		{Name: plugin.SocketVolume, MountPath: "/var/lib/kubelet/device-plugins"},
		{Name: "config", MountPath: "/config"},
	}
	if diff := cmp.Diff(want, daemonSet.Spec.Template.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func TestPrivilegedOnlyWithoutSecurityContext(t *testing.T) {
	cases := map[string]struct {
		given *corev1.SecurityContext
		then  *corev1.SecurityContext
	}{
		"unset": {nil, &corev1.SecurityContext{Privileged: ptr.To(true)}},
		"empty": {&corev1.SecurityContext{}, &corev1.SecurityContext{}},
		"set":   {&corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}, &corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			daemonSet, err := plugin.DaemonSet(module(func(m *kmmv1beta1.Module) {
				m.Spec.DevicePlugin.Container.SecurityContext = tc.given
			}), agentImage)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, daemonSet.Spec.Template.Spec.Containers[0].SecurityContext); diff != "" {
				t.Errorf("securityContext (-want +got):\n%s", diff)
			}
		})
	}
}

func TestName(t *testing.T) {
	long := plugin.Name(strings.Repeat("m", 60), kmmv1beta1.RoleDevicePlugin)
	if len(long) != 63 || long == plugin.Name(strings.Repeat("m", 61), kmmv1beta1.RoleDevicePlugin) {
		t.Errorf("name of a long Module: %q", long)
	}
	if got := plugin.Name("nic", kmmv1beta1.RoleDevicePlugin); got != "nic-device-plugin" {
		t.Errorf("got %q", got)
	}
}

// TestWhatIsDesiredTouchesNoModule: Modules belong to the cache. A list that has room behind its
// end must not be appended to.
func TestWhatIsDesiredTouchesNoModule(t *testing.T) {
	given := module(everything)
	roomy := func(m *kmmv1beta1.Module) ([]corev1.Volume, []corev1.VolumeMount, []corev1.Toleration, []corev1.LocalObjectReference) {
		p := m.Spec.DevicePlugin
		return p.Volumes, p.Container.VolumeMounts, m.Spec.Tolerations, m.Spec.ImageRepoSecrets
	}
	p := given.Spec.DevicePlugin
	p.Volumes = append(make([]corev1.Volume, 0, 9), p.Volumes...)
	p.Container.VolumeMounts = append(make([]corev1.VolumeMount, 0, 9), p.Container.VolumeMounts...)
	given.Spec.Tolerations = append(make([]corev1.Toleration, 0, 9), given.Spec.Tolerations...)
	given.Spec.ImageRepoSecrets = append(make([]corev1.LocalObjectReference, 0, 9), given.Spec.ImageRepoSecrets...)
	before := given.DeepCopy()

	if _, err := plugin.DaemonSet(given, agentImage); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the Module was changed (-before +after):\n%s", diff)
	}
	volumes, mounts, tolerations, secrets := roomy(given)
	if v, m, o, s := volumes[:len(volumes)+1], mounts[:len(mounts)+1], tolerations[:len(tolerations)+1],
		secrets[:len(secrets)+1]; v[len(v)-1].Name != "" ||
		m[len(m)-1].Name != "" || o[len(o)-1].Key != "" || s[len(s)-1].Name != "" {
		t.Errorf("something was written behind the end of a list: %+v %+v %+v %+v", v, m, o, s)
	}
}
