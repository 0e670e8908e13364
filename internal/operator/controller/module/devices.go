// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
)

// DeviceTaints keep pods off the devices of nodes in change; package devicetaint has them.
type DeviceTaints interface {
	Keep(ctx context.Context, module types.NamespacedName, driver string, begin, stay map[string]bool) error
}

// devices reads what is known of them. Without a DRA driver it reads no claims.
func (c *Controller) devices(ctx context.Context, m *v1beta1.Module) (nodeplan.Devices, error) {
	d := nodeplan.Devices{Pods: map[string]nodeplan.DriverPod{}}
	if m == nil || !c.options.DRA {
		return d, nil
	}
	var err error
	if d.Driver, err = c.driver(ctx, m); d.Driver == "" || err != nil {
		return d, err
	}
	if d.Claims, err = usedClaims(ctx, c.client, d.Driver, client.UnsafeDisableDeepCopy); err != nil {
		return d, err
	}
	var pods corev1.PodList
	err = c.client.List(ctx, &pods, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy, madeForDRA(m))
	if err != nil {
		return d, fmt.Errorf("list the pods of a DRA driver: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" && !delivery.Ended(pod) {
			p := nodeplan.DriverPod{Name: pod.Namespace + "/" + pod.Name}
			if pod.DeletionTimestamp != nil {
				p.Ends = pod.DeletionTimestamp.Time
			}
			d.Pods[pod.Spec.NodeName] = p
		}
	}
	return d, nil
}

// driver is the DRA driver that serves: another one than the Module asks for, or one that it no
// longer asks for, as long as pods have its devices. Empty: none does.
func (c *Controller) driver(ctx context.Context, m *v1beta1.Module) (string, error) {
	var daemonSets appsv1.DaemonSetList
	err := c.client.List(ctx, &daemonSets, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy, madeForDRA(m))
	if err != nil {
		return "", fmt.Errorf("list the DaemonSets of a DRA driver: %w", err)
	}
	for i := range daemonSets.Items {
		ds := &daemonSets.Items[i]
		if serving := ds.Annotations[claims.DriverAnnotation]; serving != "" && kube.MadeFor(ds, m.UID) {
			return serving, nil
		}
	}
	if m.Spec.DRA == nil {
		return "", nil
	}
	return m.Spec.DRA.DriverName, nil
}

func madeForDRA(m *v1beta1.Module) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: v1beta1.RoleDRA}
}

// usedClaims are those by which pods hold devices of a driver.
func usedClaims(ctx context.Context, r client.Reader, driver string, options ...client.ListOption) ([]resourcev1.ResourceClaim, error) {
	var all resourcev1.ResourceClaimList
	if err := r.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(c resourcev1.ResourceClaim) bool { return !claims.Holds(&c, driver) }), nil
}

// confirm asks the API server itself for claims before a node without its driver gets its order.
func (c *Controller) confirm(ctx context.Context, p *plan) error {
	if !slices.ContainsFunc(p.plans, func(pl nodeplan.Plan) bool { return pl.Drain.Released }) {
		return nil
	}
	used, err := usedClaims(ctx, c.live, p.Devices.Driver)
	if err != nil {
		return err
	}
	for i := range p.plans {
		if pl := &p.plans[i]; pl.Drain.Released && len(claims.On(pl.Node.Node, used)) > 0 {
			pl.Holds = append(pl.Holds, nodeplan.Hold{By: nodeplan.Claims})
		}
	}
	return nil
}

// taint has devices tainted before anything is ordered that takes the kernel module away under
// them, and untainted when it is there again.
func (c *Controller) taint(ctx context.Context, p *plan) error {
	if c.options.Taints == nil {
		return nil
	}
	begin, stay := map[string]bool{}, map[string]bool{}
	for i := range p.plans {
		if pl := &p.plans[i]; pl.Drain.Taint {
			begin[pl.Node.Name] = true
		}
		if n := p.plans[i].Node; n.Changing() {
			stay[n.Name] = true
		}
	}
	return c.options.Taints.Keep(ctx, p.Key, p.Devices.Driver, begin, stay)
}

// made counts what goes before the Module's finalizer does: DeviceClasses, which no owner reference
// takes along, and the driver that unprepares claims, where no kernel module keeps the Module.
func (c *Controller) made(ctx context.Context, m *v1beta1.Module) (int, error) {
	if m == nil || m.DeletionTimestamp == nil || !c.options.DRA {
		return 0, nil
	}
	var classes resourcev1.DeviceClassList
	err := c.client.List(ctx, &classes, client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name, v1beta1.ModuleNamespaceLabel: m.Namespace})
	if err != nil {
		return 0, fmt.Errorf("list DeviceClasses: %w", err)
	}
	count := 0
	for i := range classes.Items {
		if kube.WrittenBy(&classes.Items[i], kube.OwnerPlugin) {
			count++
		}
	}
	if m.Spec.ModuleLoader != nil {
		return count, nil
	}
	var daemonSets appsv1.DaemonSetList
	err = c.client.List(ctx, &daemonSets, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy, madeForDRA(m))
	if err != nil {
		return 0, fmt.Errorf("list the DaemonSets of a DRA driver: %w", err)
	}
	for i := range daemonSets.Items {
		if kube.MadeFor(&daemonSets.Items[i], m.UID) {
			count++
		}
	}
	return count, nil
}
