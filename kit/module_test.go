// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/kit"
)

// TestAModuleHasWhatIsNamed, and nothing else is sent: a field that the author did not name may be
// unknown to the cluster's definition.
func TestAModuleHasWhatIsNamed(t *testing.T) {
	cases := map[string]struct {
		given *v1beta1.Module
		then  string
	}{
		"the least": {
			kit.NewModule("nic").KernelModule("nic").Mapping(kit.Literal("6.1.0"), "r/nic:6.1.0").Build(),
			`apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic}
spec:
  selector: {}
  moduleLoader:
    container:
      modprobe: {moduleName: nic}
      kernelMappings: [{literal: 6.1.0, containerImage: r/nic:6.1.0}]
`,
		},
		"everything": {
			kit.NewModule("nic").Labels(map[string]string{"l": "v"}).Selector(map[string]string{"has": "nic"}).ServiceAccount("puller").
				Tolerations(corev1.Toleration{Key: "nic"}).KernelModule("nic").Parameter("max_dev", "5").Parameter("mode", "x y").
				Mapping(kit.Regexp(`^6\.`), "r/nic:${KERNEL_FULL_VERSION}").Mapping(kit.Literal("5.14.0"), "r/nic:old").
				ImagePullPolicy(corev1.PullAlways).ImageRepoSecret("secret").
				DirName("/usr").FirmwarePath("/firmware").LoadOrder("nic", "nic_core").RemoveInTree("old", "older").BlacklistInTree().
				ReadyWhen(v1beta1.ReadyCheck{DeviceNode: "/dev/nic0"}).Version("2.1").
				DevicePlugin("r/plugin:1", func(p *v1beta1.DevicePluginSpec) {
					p.Container.Args = []string{"--all"}
					p.Container.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(false)}
				}).Build(),
			`apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic, labels: {l: v}}
spec:
  selector: {has: nic}
  tolerations: [{key: nic}]
  imageRepoSecret: {name: secret}
  moduleLoader:
    serviceAccountName: puller
    container:
      imagePullPolicy: Always
      inTreeModulesToRemove: [old, older]
      blacklistInTree: true
      readyWhen: [{deviceNode: /dev/nic0}]
      version: "2.1"
      modprobe:
        {moduleName: nic, parameters: [max_dev=5, mode=x y], dirName: /usr, firmwarePath: /firmware, modulesLoadingOrder: [nic, nic_core]}
      kernelMappings:
      - {regexp: '^6\.', containerImage: 'r/nic:${KERNEL_FULL_VERSION}'}
      - {literal: 5.14.0, containerImage: r/nic:old}
  devicePlugin:
    container: {image: 'r/plugin:1', args: [--all], securityContext: {privileged: false}}
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wish, err := kube.Wish(tc.given, v1beta1.GroupVersion.WithKind("Module"))
			if err != nil {
				t.Fatal(err)
			}
			delete(wish.Object["metadata"].(map[string]any), "annotations") //nolint:errcheck // or the comparison shows it
			var want map[string]any
			if err := yaml.Unmarshal([]byte(tc.then), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, wish.Object); diff != "" {
				t.Errorf("what is sent (-want +got):\n%s", diff)
			}
		})
	}
}

// TestABuilderGoesOn: what was built is not changed any more.
func TestABuilderGoesOn(t *testing.T) {
	b := kit.NewModule("nic").KernelModule("nic").Mapping(kit.Regexp("."), "r/nic:1")
	first := b.Build()
	second := b.Parameter("a", "b").ImageRepoSecret("s").ImageRepoSecret("").Build()
	if first.Spec.ModuleLoader.Container.Modprobe.Parameters != nil || len(second.Spec.ModuleLoader.Container.Modprobe.Parameters) != 1 {
		t.Errorf("first %+v, second %+v", first.Spec, second.Spec)
	}
	if second.Spec.ImageRepoSecret != nil {
		t.Error("a Secret without a name")
	}
}

func TestWhenAModuleIsReady(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1beta1.ConditionReady, Status: status, Reason: reason, Message: message}}
	}
	numbers := func(available, desired int32) v1beta1.DaemonSetStatus {
		return v1beta1.DaemonSetStatus{AvailableNumber: available, DesiredNumber: desired}
	}
	plugin := &v1beta1.DevicePluginSpec{}
	cases := map[string]struct {
		generation int64
		plugin     *v1beta1.DevicePluginSpec
		given      v1beta1.ModuleStatus
		then       string
	}{
		"nobody has looked":  {then: "Progressing: Module nic is ready on 0 of 0 nodes"},
		"numbers alone, all": {given: v1beta1.ModuleStatus{ModuleLoader: numbers(2, 2)}},
		"numbers alone, some": {given: v1beta1.ModuleStatus{ModuleLoader: numbers(1, 2)},
			then: "Progressing: Module nic is ready on 1 of 2 nodes"},
		"numbers alone, no plugin yet": {plugin: plugin, given: v1beta1.ModuleStatus{ModuleLoader: numbers(2, 2), DevicePlugin: numbers(1, 2)},
			then: "Progressing: Module nic is ready on 2 of 2 nodes, and its device plugin on 1 of 2"},
		"numbers alone, with the plugin": {plugin: plugin, given: v1beta1.ModuleStatus{ModuleLoader: numbers(2, 2), DevicePlugin: numbers(2, 2)}},
		"a condition, all": {generation: 3, given: v1beta1.ModuleStatus{
			ObservedGeneration: 3, ModuleLoader: numbers(2, 2), Conditions: condition("True", "Loaded", "everywhere"),
		}},
		"a condition of before": {generation: 4, given: v1beta1.ModuleStatus{
			ObservedGeneration: 3, ModuleLoader: numbers(2, 2), Conditions: condition("True", "Loaded", "everywhere"),
		}, then: "Progressing: Module nic has changed, and its operator has not looked at it yet"},
		"a condition, no nodes": {given: v1beta1.ModuleStatus{Conditions: condition("True", "Loaded", "everywhere")},
			then: "Progressing: Module nic selects no nodes"},
		"a condition, some": {given: v1beta1.ModuleStatus{
			ModuleLoader: numbers(1, 2), Conditions: condition("False", "SignatureRejected", "node b: the key is not known"),
		}, then: "SignatureRejected: Module nic is ready on 1 of 2 nodes: node b: the key is not known"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Name: "nic", Generation: tc.generation}, Status: tc.given}
			m.Spec.DevicePlugin = tc.plugin
			err := kit.ModuleReady(m)
			got := ""
			if err != nil {
				got = err.Error()
				if p := (*kit.Problem)(nil); !errors.As(err, &p) || p.Errored {
					t.Errorf("%#v is not a Waiting", err)
				}
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
