// SPDX-License-Identifier: Apache-2.0

package operators

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit/kittest"
)

const ptemplateModule = "ptemplate_char_dev"

// TestDeletedPtemplateUnloads: what it owns goes with it, and the kernel module goes from the
// kernel.
func TestDeletedPtemplateUnloads(t *testing.T) {
	c, o := given(t, "ptemplate")
	key := client.ObjectKeyFromObject(o)
	if k := c.Node(0).AwaitLoaded(t, key); !k.Has(ptemplateModule) {
		t.Fatalf("the kernel has %v", k.Loaded)
	}
	module := &v1beta1.Module{}
	if err := c.Client.Get(t.Context(), key, module); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(module); owner == nil || owner.UID != o.GetUID() || owner.BlockOwnerDeletion == nil ||
		!*owner.BlockOwnerDeletion {
		t.Errorf("the Module's owner is %+v", owner)
	}

	if err := c.Client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}

	kittest.AwaitGone(t, c, module)
	if k := c.Node(0).AwaitUnloaded(t, key); k.Has(ptemplateModule) {
		t.Errorf("the kernel still has %v", k.Loaded)
	}
}

// TestConsumersAreWhereTheModuleIsReady: of two nodes, the one whose kernel refuses the module gets
// no consumer.
func TestConsumersAreWhereTheModuleIsReady(t *testing.T) {
	c := kittest.Shared(t)
	c.Node(1).FailLoad(t, ptemplateModule, "ENODEV")
	o := example(t, "ptemplate", c.Namespace(t))
	both := map[string]any{"feature.node.kubernetes.io/cpu-cpuid.VMX": "true"}
	if err := unstructured.SetNestedField(o.Object, both, "spec", "selector"); err != nil {
		t.Fatal(err)
	}
	c.Create(t, o)
	t.Cleanup(func() { c.Delete(t, o) })

	kittest.AwaitCondition(t, c, o, "Ready", metav1.ConditionFalse, v1beta1.ReasonNoSuchDevice)
	eventually(t, "the first node has a consumer, and only that one", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, client.InNamespace(o.GetNamespace()),
			client.MatchingLabels{"app.kubernetes.io/name": "ptemplate-consumer"}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != c.Node(0).Name || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("consumers are %+v", pods.Items)
		}
		return nil
	})
}
