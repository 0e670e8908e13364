// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/testkit/env"
)

var gearKind = schema.GroupVersionKind{Group: "optional.example.com", Version: "v1", Kind: "Gear"}

// gears is a controller of a kind that comes and goes. It notes the names that it sees.
type gears struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (g *gears) SetupWithManager(mgr ctrl.Manager) error {
	gear := &unstructured.Unstructured{}
	gear.SetGroupVersionKind(gearKind)
	return ctrl.NewControllerManagedBy(mgr).Named("gears").For(gear).Complete(g)
}

func (g *gears) Reconcile(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[r.Name] = true
	return reconcile.Result{}, nil
}

func (g *gears) saw(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[name]
}

func gearDefinition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	crd := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"gears.optional.example.com"},"spec":{"group":"optional.example.com","scope":"Cluster",
		"names":{"plural":"gears","singular":"gear","kind":"Gear","listKind":"GearList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`), &crd.Object)
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

// TestAnOptionalKindMayComeAndGo: its controller works while it is there, and the operator always.
func TestAnOptionalKindMayComeAndGo(t *testing.T) {
	e := env.Get(t)
	f := &fleet{T: t, env: e, admin: e.Admin(t)}
	options := &operator.Options{MetricsAddress: "0", ProbeAddress: "0", Controllers: []string{"*"}}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "gears"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{gearKind.Group}, Resources: []string{"gears"}, Verbs: []string{"list", "watch"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "gears"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gears"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.OperatorNamespace, Name: env.Operator}},
		},
	} {
		f.must(f.admin.Create(t.Context(), o))
		t.Cleanup(func() { f.must(f.admin.Delete(context.Background(), o)) })
	}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	f.must(err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gearKind.GroupVersion().WithKind("GearList"))
	g := &gears{seen: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, mgr, options, map[string]operator.Controller{"gears": operator.Optional(g, list)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
		f.must(client.IgnoreNotFound(f.admin.Delete(context.Background(), gearDefinition(t))))
	})
	for _, name := range []string{"first", "second"} {
		f.must(f.admin.Create(t.Context(), gearDefinition(t)))
		gear := &unstructured.Unstructured{}
		gear.SetGroupVersionKind(gearKind)
		gear.SetName(name)
		f.await("the kind to be served", func(ctx context.Context) (bool, error) {
			err := f.admin.Create(ctx, gear.DeepCopy())
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil || apierrors.IsAlreadyExists(err), client.IgnoreAlreadyExists(err)
		})
		f.await("the controller to see it", func(context.Context) (bool, error) { return g.saw(name), nil })
		f.must(f.admin.Delete(t.Context(), gearDefinition(t)))
		f.await("the definition to be gone", func(ctx context.Context) (bool, error) {
			err := f.admin.Get(ctx, client.ObjectKeyFromObject(gearDefinition(t)), gearDefinition(t))
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	select {
	case err := <-ended:
		t.Fatalf("the operator ended: %v", err)
	default:
	}
}
