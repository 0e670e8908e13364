// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// workloads are the cases about device plugins and DRA drivers.
var workloads = map[string]func(*testing.T){
	"70_device_plugin":                    devicePlugin,
	"70_device_plugin_without_loader":     devicePluginWithoutLoader,
	"71_cordoned_node_keeps_its_plugin":   cordonedNodeKeepsItsPlugin,
	"74_counts_of_a_device_plugin":        countsOfADevicePlugin,
	"75_dra_driver_and_device_classes":    draDriver,
	"77_dra_driver_from_beginning_to_end": draDriver,
}

func withPlugin(m *v1beta1.Module) {
	m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "registry.example.com/plugin:1"}}
}

// daemonSet is the Module's only one, with that many ready pods.
func (c *corner) daemonSet(role string, ready int32) *appsv1.DaemonSet {
	c.Helper()
	var sets appsv1.DaemonSetList
	c.eventually("one DaemonSet has its pods", func(ctx context.Context) error {
		err := shared.Admin.List(ctx, &sets, client.InNamespace(c.key.Namespace), client.MatchingLabels{
			"kmm.node.kubernetes.io/role": role, "kmm.node.kubernetes.io/module.name": c.key.Name,
		})
		if err == nil && (len(sets.Items) != 1 || sets.Items[0].Status.NumberReady != ready) {
			err = fmt.Errorf("%d DaemonSets: %+v", len(sets.Items), sets.Items)
		}
		return err
	})
	return &sets.Items[0]
}

func devicePlugin(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(withPlugin, func(m *v1beta1.Module) {
		m.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/nic", Operator: corev1.TolerationOpExists}}
	})
	c.loaded()
	spec := c.daemonSet("device-plugin", 1).Spec.Template.Spec
	main := spec.Containers[0]
	if main.SecurityContext == nil || main.SecurityContext.Privileged == nil || !*main.SecurityContext.Privileged ||
		spec.PriorityClassName != "system-node-critical" || spec.ServiceAccountName == "" || len(spec.Tolerations) == 0 ||
		main.VolumeMounts[0].MountPath != "/var/lib/kubelet/device-plugins" ||
		spec.Volumes[0].HostPath.Path != "/var/lib/kubelet/device-plugins" {
		t.Errorf("the pods are %+v", spec)
	}
	if diff := cmp.Diff(map[string]string{v1beta1.ReadyLabel(c.key.Namespace, c.key.Name): ""}, spec.NodeSelector); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func devicePluginWithoutLoader(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(withPlugin, func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })
	spec := c.daemonSet("device-plugin", 1).Spec.Template.Spec
	if diff := cmp.Diff(map[string]string{c.selector(): "yes"}, spec.NodeSelector); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	c.eventually("the node says so", func(ctx context.Context) error {
		return c.labelled(ctx, v1beta1.DevicePluginReadyLabel(c.key.Namespace, c.key.Name))
	})
	c.must(c.kernels(t.Context(), tally{}))
}

func (c *corner) labelled(ctx context.Context, labels ...string) error {
	node, err := c.node(ctx, c.nodes[0])
	if err != nil {
		return err
	}
	for _, label := range labels {
		if _, ok := node.Labels[label]; !ok {
			return fmt.Errorf("node %s lacks %s: %v", node.Name, label, node.Labels)
		}
	}
	return nil
}

func cordonedNodeKeepsItsPlugin(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(withPlugin)
	c.loaded()
	before := c.daemonSet("device-plugin", 1)
	old := "kmm.node.kubernetes.io/" + c.key.Name + ".ready"
	// The operator takes the old label off: then it has seen the cordon, too.
	c.patchNode(c.nodes[0], fmt.Sprintf(`{"spec":{"unschedulable":true},"metadata":{"labels":{%q:""}}}`, old))
	c.eventually("the operator has seen the cordon", func(ctx context.Context) error {
		if c.labelled(ctx, old) == nil {
			return errors.New("the old label is there")
		}
		return c.labelled(ctx, v1beta1.ReadyLabel(c.key.Namespace, c.key.Name), v1beta1.DevicePluginReadyLabel(c.key.Namespace, c.key.Name))
	})
	if after := c.daemonSet("device-plugin", 1); after.Generation != before.Generation {
		t.Errorf("the DaemonSet was changed: %+v", after.Spec)
	}
	c.must(c.kernels(t.Context(), once))
}

func countsOfADevicePlugin(t *testing.T) {
	c := given(t, kernelDebian, kernelFedora)
	c.create(withPlugin, func(m *v1beta1.Module) { mapping(m).Regexp = "^6" })
	all := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 1}
	one := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 1, AvailableNumber: 1}
	c.counts(one, all, v1beta1.DaemonSetStatus{})
	c.change(func(m *v1beta1.Module) { mapping(m).Regexp = ".+" })
	all.AvailableNumber = 2
	c.counts(all, all, v1beta1.DaemonSetStatus{})
}

func (c *corner) counts(loader, plugin, driver v1beta1.DaemonSetStatus) {
	c.Helper()
	c.eventually("the nodes are counted", func(ctx context.Context) error {
		m, err := c.read(ctx)
		if err != nil {
			return err
		}
		want := []v1beta1.DaemonSetStatus{loader, plugin, driver}
		if diff := cmp.Diff(want, []v1beta1.DaemonSetStatus{m.Status.ModuleLoader, m.Status.DevicePlugin, m.Status.DRA}); diff != "" {
			return fmt.Errorf("loader, plugin, driver (-want +got):\n%s", diff)
		}
		return nil
	})
}

func draDriver(t *testing.T) {
	c := given(t, kernelDebian)
	first, second := c.key.Namespace+"-a", c.key.Namespace+"-b"
	c.create(func(m *v1beta1.Module) {
		m.Spec.DRA = driver("dra.example.com", first)
		m.Spec.DRA.Container.Image = "registry.example.com/driver:1"
	})
	served, err := shared.ServesDRA()
	c.must(err)
	if !served {
		// The release is too old for DRA drivers, which is said; the kernel module is loaded all the
		// same.
		c.eventually("the Module says so", func(ctx context.Context) error {
			return errors.Join(c.kernels(ctx, once), c.says(ctx, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonUnsupported))
		})
		return
	}
	c.loaded()
	spec := c.daemonSet("dra", 1).Spec.Template.Spec
	if probe := spec.Containers[0].LivenessProbe; probe == nil || probe.GRPC == nil || probe.GRPC.Port != 51515 ||
		*probe.GRPC.Service != "liveness" {
		t.Errorf("the driver's probe is %+v", probe)
	}
	one := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 1, DesiredNumber: 1, AvailableNumber: 1}
	c.counts(one, v1beta1.DaemonSetStatus{}, one)
	c.must(c.labelled(t.Context(), v1beta1.DRAReadyLabel(c.key.Namespace, c.key.Name)))
	c.classes(first)

	c.must(shared.Admin.Delete(t.Context(), &resourcev1.DeviceClass{ObjectMeta: c.class(first).ObjectMeta}))
	c.classes(first)
	c.change(func(m *v1beta1.Module) { m.Spec.DRA.DeviceClasses = []v1beta1.DeviceClassSpec{{Name: second}} })
	c.classes(second)

	c.must(shared.Admin.Delete(t.Context(), c.module()))
	c.eventually("the Module is gone", c.gone)
	c.classes()
}

// classes waits until the Module's DeviceClasses are these.
func (c *corner) classes(want ...string) {
	c.Helper()
	c.eventually(fmt.Sprintf("the DeviceClasses are %v", want), func(ctx context.Context) error {
		var list resourcev1.DeviceClassList
		err := shared.Admin.List(ctx, &list, client.MatchingLabels{
			"kmm.node.kubernetes.io/module.name": c.key.Name, "kmm.node.kubernetes.io/module.namespace": c.key.Namespace,
		})
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("classes (-want +got):\n%s", diff)
		}
		return err
	})
}

func (c *corner) class(name string) *resourcev1.DeviceClass {
	c.Helper()
	class := &resourcev1.DeviceClass{}
	err := shared.Admin.Get(c.Context(), client.ObjectKey{Name: name}, class)
	if apierrors.IsNotFound(err) {
		c.Fatalf("there is no DeviceClass %s", name)
	}
	c.must(err)
	return class
}
