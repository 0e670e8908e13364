// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	namespace   = "default"
	concurrency = 16
)

// kernels of the nodes by turns, as in the middle of an upgrade.
var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// write makes the fleet: Nodes with their ready labels, Modules, and what is ordered and reported
// on each node.
func write(ctx context.Context, f *fleet.Fleet, nodes, modules int, say func(string, ...any)) error {
	for _, args := range [][]string{{"apply", "--server-side", "-k", "config/crd"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"}} {
		if _, err := f.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	all := make([]*v1beta1.Module, modules)
	for i := range all {
		all[i] = moduleOf(i)
		if err := f.Admin.Create(ctx, all[i]); err != nil {
			return fmt.Errorf("create a Module: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range nodes {
		if i%1000 == 0 && i > 0 {
			say("%d nodes are there", i)
		}
		group.Go(func() error { return writeNode(ctx, f.Admin, i, all) })
	}
	return group.Wait()
}

func writeNode(ctx context.Context, c client.Client, number int, modules []*v1beta1.Module) error {
	node := nodeOf(number, len(modules))
	status := node.Status
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("create a Node: %w", err)
	}
	patch := client.MergeFrom(node.DeepCopy()) // others write to Nodes, too
	node.Status = status
	if err := c.Status().Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("report a Node: %w", err)
	}
	config, err := configOf(node, number, modules)
	if err != nil {
		return err
	}
	report := config.Status
	if err := c.Create(ctx, config); err != nil {
		return fmt.Errorf("create a NodeModulesConfig: %w", err)
	}
	config.Status = report
	if err := c.Status().Update(ctx, config); err != nil {
		return fmt.Errorf("report on a node: %w", err)
	}
	return nil
}

func moduleName(i int) string { return fmt.Sprintf("vendor-driver-%d", i) }

func moduleOf(i int) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: moduleName(i)},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/pool": "all"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: fmt.Sprintf("vendor_driver_%d", i), Parameters: []string{"mode=fast"}},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: image(i, "${KERNEL_FULL_VERSION}")}},
			}},
		},
	}
}

func image(i int, tag string) string {
	return "registry.example.com/drivers/" + moduleName(i) + ":" + tag
}

func nodeName(number int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", number>>16, number>>8&255, number&255)
}

// nodeOf has the labels and the system information that nodes of clouds have.
func nodeOf(number, modules int) *corev1.Node {
	name := nodeName(number)
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelInstanceTypeStable: "m6i.4xlarge", corev1.LabelTopologyRegion: "eu-central-1", corev1.LabelTopologyZone: "eu-central-1" +
			string(rune('a'+number%3)),
		"example.com/pool": "all", "node.kubernetes.io/lifecycle": "normal", "topology.ebs.csi.aws.com/zone": "eu-central-1a",
	}
	for i := range modules {
		labels[v1beta1.ReadyLabel(namespace, moduleName(i))] = ""
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				KernelVersion: kernels[number%len(kernels)], BootID: newID(), MachineID: hash("machine", number)[:32], SystemUUID: newID(),
				OSImage: "Debian GNU/Linux 12 (bookworm)", ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.36.3",
				OperatingSystem: "linux", Architecture: "amd64",
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

// configOf is a node on which all Modules are live, by the orders that the operator gives. Half of
// the loads took until the next second.
func configOf(node *corev1.Node, number int, modules []*v1beta1.Module) (*v1beta1.NodeModulesConfig, error) {
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, Labels: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	info := &node.Status.NodeInfo
	for i, m := range modules {
		wants := desired.New(m).On(info.KernelVersion, info.Architecture)
		if wants.State == nil {
			return nil, fmt.Errorf("nobody knows what %s wants of %s: %w", m.Name, node.Name, wants.Err)
		}
		item := v1beta1.ModuleItem{Namespace: m.Namespace, Name: m.Name, ServiceAccountName: delivery.ServiceAccount(m)}
		config, id := wants.State.Config, wants.State.Delivery
		began := metav1.NewTime(time.Unix(1_900_000_000+int64(number*len(modules)+i), 0))
		order := v1beta1.NodeModuleSpec{
			ModuleItem: item, Config: config, Delivery: &v1beta1.Delivery{ID: id, CarrierUID: types.UID(newID())},
			UnloadPolicy: m.Spec.ModuleLoader.Container.UnloadPolicy,
		}
		c.Spec.Modules = append(c.Spec.Modules, order)
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{
			ModuleItem: item, Config: &config, BootID: info.BootID,
			LastTransitionTime: metav1.NewTime(began.Add(time.Duration(i%2) * time.Second)),
			Observed: &v1beta1.ObservedModule{
				Delivery: id, BuildID: hash("build", i, info.KernelVersion)[:40], SrcVersion: hash("source", i)[:23], LoadBegan: &began, Taint: "OE",
				Parameters: map[string]string{"mode": "fast", "debug": "0"},
			},
		})
		c.Status.Artifacts = append(c.Status.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: hash("content", i, info.KernelVersion)})
		maps.Copy(c.Labels, nodeplan.Labels(&order))
	}
	return c, nil
}

func hash(of ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(of...)))
	return hex.EncodeToString(sum[:])
}

func newID() string { return string(uuid.NewUUID()) }
