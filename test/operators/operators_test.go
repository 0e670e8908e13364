// SPDX-License-Identifier: Apache-2.0

package operators

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit/kittest"
)

const (
	pace     = 100 * time.Millisecond
	patience = 90 * time.Second
)

// eventually waits until there is nothing to object any more.
func eventually(t *testing.T, what string, objection func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pace, patience, true, func(ctx context.Context) (bool, error) {
		if err := objection(ctx); err != nil {
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("it was to be that %s; after %s: %v", what, patience, last)
	}
}

// TestExamplesBecomeReady as they are printed.
func TestExamplesBecomeReady(t *testing.T) {
	result.Seeds = len(examples)
	c := kittest.Shared(t)
	for _, name := range examples {
		t.Run(name, func(t *testing.T) {
			o := example(t, name, c.Namespace(t))
			c.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: "some-sa"}})
			c.Create(t, o)
			awaitReady(t, c, o)
			result.Ready++
			if name == "lolcow" {
				return
			}
			modules := &v1beta1.ModuleList{}
			if err := c.Client.List(t.Context(), modules, client.InNamespace(o.GetNamespace())); err != nil || len(modules.Items) != 1 {
				t.Fatalf("it has %d Modules (%v)", len(modules.Items), err)
			}
		})
	}
}

// TestSecondPassWritesNothing: an operator that starts again looks at everything, and finds nothing
// to write.
func TestSecondPassWritesNothing(t *testing.T) {
	c := kittest.Shared(t)
	for _, name := range []string{"deviceconfig", "ptemplate", "lolcow"} {
		given(t, name)
	}
	total := 0
	for _, name := range operators {
		writes := c.Operator(t, name+"-operator").SecondPass(t)
		if total += len(writes); len(writes) > 0 {
			t.Errorf("%s-operator writes although there is nothing to do: %+v", name, writes)
		}
	}
	result.SecondPassWrites = total
}

// kinds of children, and how somebody spoils one; nil where there is nothing to spoil.
var kinds = []struct {
	kind  schema.GroupVersionKind
	patch string
}{
	{v1beta1.GroupVersion.WithKind("Module"), `[{"op":"replace","path":"/spec/moduleLoader/container/modprobe/moduleName","value":"spoilt"}]`},
	{appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/spoilt"}]`},
	{appsv1.SchemeGroupVersion.WithKind("Deployment"),
		`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/spoilt"}]`},
	{corev1.SchemeGroupVersion.WithKind("Service"), `[{"op":"replace","path":"/spec/ports/0/targetPort","value":"spoilt"}]`},
	{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), ``},
	{schema.GroupVersionKind{Group: "my.domain", Version: "v1alpha1", Kind: "LolcowWorkspace"}, ``},
}

// TestChildrenHeal: what somebody changes or deletes is put right, and nothing but a watch tells of
// it.
func TestChildrenHeal(t *testing.T) {
	healed := 0
	for _, name := range []string{"deviceconfig", "ptemplate", "lolcow"} {
		t.Run(name, func(t *testing.T) {
			c, o := given(t, name)
			if name == "lolcow" && result.Break == "operator" {
				c.Operator(t, "lolcow-operator").Stop(t)
			}
			for i := range kinds {
				if kinds[i].kind.Kind == "LolcowWorkspace" {
					continue // nothing follows from it
				}
				for _, child := range childrenOf(t, c, o, kinds[i].kind) {
					heals(t, c, &child, kinds[i].patch)
					healed++
				}
			}
			awaitReady(t, c, o)
		})
	}
	// A ServiceAccount and a Module, a Module and a DaemonSet, a Deployment and a Service.
	if healed != 6 {
		t.Errorf("%d children were changed and deleted", healed)
	}
	result.Healed = !t.Failed()
}

// childrenOf are the children of one kind that an object controls.
func childrenOf(t *testing.T, c *kittest.Cluster, o client.Object, kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	kind.Kind += "List"
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := c.Client.List(t.Context(), list, client.InNamespace(o.GetNamespace())); err != nil {
		t.Fatal(err)
	}
	var mine []unstructured.Unstructured
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], o) {
			mine = append(mine, list.Items[i])
		}
	}
	return mine
}

// heals spoils a child and deletes it.
func heals(t *testing.T, c *kittest.Cluster, child *unstructured.Unstructured, patch string) {
	t.Helper()
	right, name := child.DeepCopy(), child.GetKind()+" "+child.GetName()
	if patch != "" {
		if err := c.Client.Patch(t.Context(), child, client.RawPatch(types.JSONPatchType, []byte(patch)),
			client.FieldOwner("somebody")); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is as it was", func(ctx context.Context) error { return same(ctx, c, right) })
		// A DaemonSet that goes while its controller changes its pods leaves it waiting for them, for
		// five minutes, under the next one's name.
		eventually(t, name+" is done with the change", func(ctx context.Context) error { return done(ctx, c, child) })
	}
	if err := c.Client.Delete(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" is there again", func(ctx context.Context) error {
		now := child.DeepCopy()
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(child), now); err != nil {
			return err
		}
		if now.GetUID() == right.GetUID() {
			return errors.New("the old one is there")
		}
		return nil
	})
}

// done objects while the cluster's controllers have not followed the object's last change.
func done(ctx context.Context, c *kittest.Cluster, child *unstructured.Unstructured) error {
	now := child.DeepCopy()
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(child), now); err != nil {
		return err
	}
	status, _, err := unstructured.NestedMap(now.Object, "status")
	if err != nil {
		return err
	}
	if seen, ok := status["observedGeneration"]; ok && seen != now.GetGeneration() {
		return fmt.Errorf("generation %v is observed, of %d", seen, now.GetGeneration())
	}
	for _, number := range []string{"updatedNumberScheduled", "numberReady"} {
		if now.GetKind() == "DaemonSet" && status[number] != status["desiredNumberScheduled"] {
			return fmt.Errorf("%s is %v, of %v", number, status[number], status["desiredNumberScheduled"])
		}
	}
	return nil
}

// same objects unless the object's spec is what it was.
func same(ctx context.Context, c *kittest.Cluster, right *unstructured.Unstructured) error {
	now := right.DeepCopy()
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(right), now); err != nil {
		return err
	}
	if was, is := fmt.Sprint(right.Object["spec"]), fmt.Sprint(now.Object["spec"]); was != is {
		return fmt.Errorf("its spec was %s and is %s", was, is)
	}
	return nil
}
