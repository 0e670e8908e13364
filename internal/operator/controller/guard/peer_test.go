// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"context"
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
	"github.com/drover-project/drover/internal/operator/controller/guard"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// watch is a guard with the operator's rights and a clock of its own.
type watch struct {
	guard *guard.Controller
	gate  *gate.Gate
	clock *clocktesting.FakePassiveClock
	again time.Duration
}

func newWatch(t *testing.T, now time.Time) *watch {
	t.Helper()
	e := env.Get(t)
	w := &watch{gate: &gate.Gate{}, clock: clocktesting.NewFakePassiveClock(now)}
	w.guard = guard.New(e.Client(t, e.Config(t, env.Operator)), w.gate, w.clock)
	return w
}

// look says why the gate is closed after a look, or nothing, and the whole of what it says.
func (w *watch) look(t *testing.T) (short, whole string) {
	t.Helper()
	var err error
	if w.again, err = w.guard.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := w.gate.Closed(); p != nil {
		return p.Reason, p.Message
	}
	return "", ""
}

// peer is what runs in a namespace and holds KMM's Lease.
type peer struct {
	t         *testing.T
	c         client.Client
	namespace string
	lease     *coordinationv1.Lease
}

// newPeer runs a pod with a ServiceAccount of its own, as who c is, and lets it hold the Lease. The
// renewal's time is of a clock that is far ahead.
func newPeer(t *testing.T, c client.Client, namespace, pod string) *peer {
	t.Helper()
	host := pod
	if len(host) > 63 {
		host = strings.TrimRight(host[:63], "-.")
	}
	p := &peer{t: t, c: c, namespace: namespace, lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: guard.PeerLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(host + "_0b5ec0de-1d1e"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: &metav1.MicroTime{Time: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)},
		},
	}}
	p.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kmm-operator-controller"}})
	p.make(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
		Spec: corev1.PodSpec{
			ServiceAccountName: "kmm-operator-controller", TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "manager", Image: "example.com/kmm:1"}},
		},
	})
	p.make(p.lease)
	return p
}

func (p *peer) make(o client.Object) {
	p.t.Helper()
	if err := p.c.Create(p.t.Context(), o); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := client.IgnoreNotFound(env.Get(p.t).Admin(p.t).Delete(context.Background(), o)); err != nil {
			p.t.Error(err)
		}
	})
}

// change writes the Lease.
func (p *peer) change(change func(*coordinationv1.LeaseSpec)) {
	p.t.Helper()
	change(&p.lease.Spec)
	if err := p.c.Update(p.t.Context(), p.lease); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) renew() {
	p.change(func(s *coordinationv1.LeaseSpec) {
		s.RenewTime = &metav1.MicroTime{Time: s.RenewTime.Add(-time.Second)}
	})
}

// authorized has the right to order kernel modules, as KMM's own role gives it.
func (p *peer) authorized() {
	p.t.Helper()
	p.make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"nodemodulesconfigs"},
		Verbs: []string{"get", "list", "watch", "patch", "create", "delete"},
	}}})
	p.make(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: "kmm-operator-controller"}},
	})
}

// TestAPeerIsWhoCouldOrder: in whatever namespace KMM was installed, and whatever its clock says.
func TestAPeerIsWhoCouldOrder(t *testing.T) {
	const pod = "kmm-operator-controller-5d8c7b9f4-x2x7q"
	cases := map[string]struct {
		pod   string
		given func(*peer)
		then  string
	}{
		"KMM's operator":                       {pod, func(*peer) {}, v1beta1.ReasonPeerActive},
		"its pod's name is longer than hosts'": {strings.Repeat("n", 62) + "-" + pod, func(*peer) {}, v1beta1.ReasonPeerActive},
		"its name is cut in a row of dashes":   {strings.Repeat("n", 59) + "-----x", func(*peer) {}, v1beta1.ReasonPeerActive},
		"it has given its Lease back": {pod,
			func(p *peer) { p.change(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("") }) }, ""},
		"the Lease is left of a pod that went": {pod, func(p *peer) {
			p.change(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("kmm-operator-controller-0_1") })
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := env.Get(t)
			p := newPeer(t, e.Admin(t), e.Namespace(t), tc.pod)
			p.authorized()
			tc.given(p)
			got, message := reason(t, time.Now())
			if got != tc.then || tc.then != "" && !strings.Contains(message, p.namespace) {
				t.Errorf("%q: %s", got, message)
			}
		})
	}
}

// TestNobodyWithOneNamespaceStopsDrover: a tenant makes everything there that KMM's operator has,
// but the rights.
func TestNobodyWithOneNamespaceStopsDrover(t *testing.T) {
	e := env.Get(t)
	namespace := e.Namespace(t)
	// The rules of the ClusterRole edit, which a controller manager would put together.
	p := newPeer(t, e.Client(t, clitest.Viewer(t, e, "system:aggregate-to-edit", namespace)), namespace, "kmm-operator-controller-0")
	w := newWatch(t, time.Now())
	for range 3 {
		if got, message := w.look(t); got != "" {
			t.Fatalf("%q: %s", got, message)
		}
		p.renew()
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	}
}

// TestAPeerLivesWhileItsLeaseChanges: judged by our own clock, at each look that the one before
// asked for.
func TestAPeerLivesWhileItsLeaseChanges(t *testing.T) {
	e := env.Get(t)
	p := newPeer(t, e.Admin(t), e.Namespace(t), "kmm-operator-controller-0")
	p.authorized()
	w := newWatch(t, time.Now())
	for i := range 3 {
		if got, _ := w.look(t); got != v1beta1.ReasonPeerActive {
			t.Fatalf("look %d, with a Lease that changes: %q", i, got)
		}
		p.renew()
		w.clock.SetTime(w.clock.Now().Add(w.again))
	}
	w.look(t)
	if w.again <= 0 || w.again > 15*time.Second {
		t.Errorf("the next look is after %v", w.again)
	}
	w.clock.SetTime(w.clock.Now().Add(w.again))
	if got, message := w.look(t); got != "" {
		t.Errorf("not renewed for its duration: %q: %s", got, message)
	}
}
