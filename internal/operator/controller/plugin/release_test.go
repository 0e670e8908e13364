// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestPluginPodsOfKMMEnd: KMM's finalizer goes from a pod that is being deleted, and from no other,
// by the operator's own right, which is for nothing else.
func TestPluginPodsOfKMMEnd(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	namespace := e.Namespace(t)
	pod := func(name string, finalizers ...string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers, Labels: map[string]string{
				kmmv1beta1.ModuleNameLabel: "nic", kmmv1beta1.RoleLabel: kmmv1beta1.RoleDevicePlugin,
			}},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(0)),
				Containers: []corev1.Container{{Name: "main", Image: "example.com/plugin:v1"}},
			},
		}
		create(t, admin, p)
		return p
	}
	leaves, stays := pod("leaves", kmmv1beta1.PluginPodFinalizer), pod("stays", kmmv1beta1.PluginPodFinalizer)
	held := pod("held", kmmv1beta1.PluginPodFinalizer, "example.com/another")
	start(t, e)
	for _, p := range []*corev1.Pod{leaves, held} {
		if err := admin.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the deleted pod ends", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(leaves), &corev1.Pod{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	eventually(t, "another's finalizer stays", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(held), held)
		return cmp.Equal(held.Finalizers, []string{"example.com/another"}), err
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(stays), stays); err != nil || len(stays.Finalizers) != 1 {
		t.Errorf("the pod that stays: finalizers %v, error %v", stays.Finalizers, err)
	}

	operator := e.Client(t, e.Config(t, env.Operator))
	for what, patch := range map[string]string{
		"a label":                     `{"metadata":{"labels":{"a":"b"}}}`,
		"an image":                    `{"spec":{"containers":[{"name":"main","image":"evil:1"}]}}`,
		"the finalizer of a live pod": `{"metadata":{"$deleteFromPrimitiveList/finalizers":["kmm.node.kubernetes.io/node-labeler"]}}`,
	} {
		err := operator.Patch(t.Context(), stays.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
		if !apierrors.IsForbidden(err) {
			t.Errorf("the operator may change %s: %v", what, err)
		}
	}
	change := []byte(`{"metadata":{"finalizers":null}}`)
	for _, p := range []*corev1.Pod{held, stays} {
		if err := admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, change)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	e.AssertNoMasters(t)
}
