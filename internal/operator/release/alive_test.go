// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/operator/release"
	"github.com/drover-project/drover/internal/testkit/env"
)

// impatient is a clock on which nobody waits: it is later at once, and then something happens.
type impatient struct {
	*clocktesting.FakeClock
	then func()
}

func newClock(then func()) impatient { return impatient{clocktesting.NewFakeClock(time.Now()), then} }

func (c impatient) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	if c.then != nil {
		c.then()
	}
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

// create makes objects until the test ends.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(c.Delete(context.Background(), o)); err != nil {
				t.Error(err)
			}
		})
	}
}

// kmm is what KMM's operator has in a namespace, but for the Lease.
func kmm(namespace, pod string) []client.Object {
	const account = "kmm-operator-controller"
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}, Spec: corev1.PodSpec{
			ServiceAccountName: account, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "manager", Image: "example.com/kmm:1"}},
		}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"nodemodulesconfigs"}, Verbs: []string{"patch"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		},
	}
}

// TestWhoLivesKeepsTheFinalizers: KMM its Modules, and Drover's own operator everything.
func TestWhoLivesKeepsTheFinalizers(t *testing.T) {
	const peer, own, pod = "kmm.sigs.x-k8s.io", "drover-operator", "kmm-operator-controller-0"
	const renews, stays, ends = "renews", "stays", "is given back"
	cases := map[string]struct {
		lease, holder, then string
		ours                bool // the Lease is in Drover's namespace
		fails, module       bool // the finalizers are left: all, or the Module's
	}{
		"KMM leads":                           {lease: peer, holder: pod, then: renews, module: true},
		"KMM stops":                           {lease: peer, holder: pod, then: ends},
		"KMM's node is gone":                  {lease: peer, holder: pod, then: stays},
		"KMM's pod is gone":                   {lease: peer, holder: "another", then: renews},
		"Drover leads":                        {lease: own, holder: own + "-1", then: renews, ours: true, fails: true},
		"Drover leads from a desk":            {lease: own, holder: "desk", then: renews, ours: true, fails: true},
		"Drover stops":                        {lease: own, holder: own + "-1", then: ends, ours: true},
		"Drover was killed":                   {lease: own, holder: own + "-1", then: stays, ours: true},
		"Drover leads by a Lease like KMM's":  {lease: peer, holder: own + "-1", then: renews, ours: true, fails: true},
		"somebody else has a Lease like ours": {lease: own, holder: own + "-1", then: renews},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := env.Get(t)
			admin, namespace := e.Admin(t), e.Namespace(t)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tc.lease}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To(tc.holder + "_0b5ec0de"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{},
			}}
			if tc.ours {
				lease.Namespace = env.OperatorNamespace
			}
			module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
			module.Finalizers = []string{v1beta1.ModuleFinalizer}
			module.Spec.Selector = map[string]string{"none": "yes"}
			order := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: namespace, Finalizers: []string{nodeplan.OrdersFinalizer}}}
			create(t, admin, append(kmm(namespace, pod), lease, module, order)...)

			_, kept, err := release.All(t.Context(), admin, newClock(func() {
				switch tc.then {
				case renews:
					lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Second)}
				case ends:
					lease.Spec.HolderIdentity = ptr.To("")
				}
				if err := admin.Update(t.Context(), lease); err != nil {
					t.Error(err)
				}
			}))
			if (err != nil) != tc.fails || err != nil && !strings.Contains(err.Error(), tc.lease) {
				t.Errorf("it ends with %v", err)
			}
			if says := tc.module; (kept != "") != says || says && !strings.Contains(kept, namespace) {
				t.Errorf("it says %q", kept)
			}
			for _, o := range []struct {
				client.Object
				finalizer string
				held      bool
			}{{module, v1beta1.ModuleFinalizer, tc.module || tc.fails}, {order, nodeplan.OrdersFinalizer, tc.fails}} {
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o.Object); err != nil {
					t.Fatal(err)
				}
				if held := slices.Contains(o.GetFinalizers(), o.finalizer); held != o.held {
					t.Errorf("%T is held: %v", o.Object, held)
				}
				o.SetFinalizers(nil)
				if err := admin.Update(t.Context(), o.Object); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
