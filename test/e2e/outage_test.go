// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// onlyEven are the images of kernelEven.
const onlyEven = `6\.1\.0`

// halfWay creates the Module while the images of one kernel do not exist: half of the nodes load,
// the others' carriers wait.
func (s *scenario) halfWay() {
	s.Helper()
	s.images(onlyEven)
	s.create()
	s.eventually("half of the nodes have loaded and the others wait for an image", func(ctx context.Context) error {
		return errors.Join(
			kernels(ctx, s.kernelModule, each(evenNodes, once)), s.labelled(ctx, evenNodes),
			s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonImageNotFound, oddNodes...))
	})
}

// firstCarrier returns as soon as the first carrier is created.
func (s *scenario) firstCarrier(create func()) {
	s.Helper()
	w, err := shared.watch.Watch(s.Context(), &corev1.PodList{}, client.InNamespace(s.key.Namespace), client.HasLabels{v1beta1.CarrierLabel})
	s.must(err)
	defer w.Stop()
	create()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	select {
	case e := <-w.ResultChan():
		if e.Type != watch.Added {
			s.Fatalf("the watch for carriers says %s", e.Type)
		}
	case <-ctx.Done():
		s.Fatal("no carrier was created")
	}
}

func (s *scenario) stopAPIServer() {
	s.Helper()
	shared.outage = true
	s.whenFailed(func(ctx context.Context) error {
		if !shared.outage {
			return nil
		}
		shared.outage = false
		return shared.Cluster.StartComponent(ctx, devcluster.APIServer)
	})
	s.must(shared.Cluster.StopComponent(s.Context(), devcluster.APIServer))
}

func (s *scenario) startAPIServer() {
	s.Helper()
	s.must(shared.Cluster.StartComponent(s.Context(), devcluster.APIServer))
	shared.outage = false
}

func (s *scenario) killOperator() {
	s.Helper()
	s.whenFailed(func(ctx context.Context) error {
		if shared.Operator.Running() {
			return nil
		}
		return shared.StartOperator(ctx)
	})
	s.must(shared.Operator.Kill())
}

func (s *scenario) startOperator() {
	s.Helper()
	s.must(shared.StartOperator(s.Context()))
}

// TestAPIServerRestartsHalfWay: nodes that have their orders need no API server to carry them out.
func TestAPIServerRestartsHalfWay(t *testing.T) {
	s := given(t, "api-half")
	s.halfWay()

	s.stopAPIServer()
	s.images("")
	s.eventually("the others load while the API server is away", func(ctx context.Context) error {
		return kernels(ctx, s.kernelModule, each(everyNode, once))
	})
	s.startAPIServer()

	s.converged(each(everyNode, once))
}

func TestAPIServerRestartsAtTheFirstCarrier(t *testing.T) {
	s := given(t, "api-first")
	s.firstCarrier(func() { s.create() })

	s.stopAPIServer()
	s.startAPIServer()

	s.converged(each(everyNode, once))
}

// TestOperatorKilledHalfWay: agents finish what they have orders for; the next operator tidies up.
func TestOperatorKilledHalfWay(t *testing.T) {
	s := given(t, "op-half")
	s.halfWay()

	s.killOperator()
	s.images("")
	s.eventually("the others load without an operator", func(ctx context.Context) error {
		return kernels(ctx, s.kernelModule, each(everyNode, once))
	})
	s.startOperator()

	s.converged(each(everyNode, once))
}

// TestOperatorKilledAtTheFirstCarrier: carriers that nobody remembers are made again; none stays.
func TestOperatorKilledAtTheFirstCarrier(t *testing.T) {
	s := given(t, "op-first")
	s.firstCarrier(func() { s.create() })

	s.killOperator()
	s.startOperator()

	s.converged(each(everyNode, once))
}

func TestLifecycleOperatorKilledWhileDeleting(t *testing.T) {
	s := given(t, "op-delete")
	s.create()
	s.converged(each(everyNode, once))

	s.must(shared.Admin.Delete(s.Context(), s.module()))
	s.killOperator()
	s.startOperator()

	s.eventually("the Module is gone", func(ctx context.Context) error { return gone(ctx, s.key) })
	s.journalIs(each(everyNode, tally{Loads: 1, Unloads: 1}))
}

func TestRegistryThatIsDown(t *testing.T) {
	s := given(t, "registry")
	s.images("no-such-image")
	s.create(func(m *v1beta1.Module) {
		m.Spec.Selector = map[string]string{"drover.dev/hollow": "true"}
	})
	s.eventually("the Module names the reason and nodes", func(ctx context.Context) error {
		return errors.Join(
			s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonImageNotFound, "hollow-0", "hollow-1", "hollow-2", "3 more"),
			s.says(ctx, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonImageNotFound))
	})
	s.journalIs(map[string]tally{})

	s.images("")

	s.converged(each(everyNode, once))
}
