// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/status"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// watched runs `drover status --watch` with more arguments. Await reads until it prints some words,
// and end ends it.
func watched(t *testing.T, namespace string, args ...string) (await func(words string), end func()) {
	t.Helper()
	config := env.Get(t).AdminConfig()
	ctx, enough := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	flags := genericclioptions.NewConfigFlags(false).WithWrapConfigFn(func(*rest.Config) *rest.Config { return rest.CopyConfig(config) })
	flags.APIServer, flags.Namespace = &config.Host, &namespace
	streams := genericiooptions.IOStreams{Out: writer, ErrOut: io.Discard}
	command := status.NewCommand(flags, streams, clocktesting.NewFakePassiveClock(clitest.Noon))
	command.SetArgs(append([]string{"--watch"}, args...))
	ended := make(chan error, 1)
	go func() {
		err := command.ExecuteContext(ctx)
		_ = writer.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(reader)
	t.Cleanup(enough)
	return func(words string) {
			t.Helper()
			for lines.Scan() {
				if strings.Contains(lines.Text(), words) {
					return
				}
			}
			t.Fatalf("it ended without %q: %v", words, <-ended)
		}, func() {
			t.Helper()
			enough()
			for lines.Scan() { // the rest of the picture
			}
			if err := <-ended; err != nil {
				t.Errorf("it ends with %v", err)
			}
		}
}

// TestWatchShowsWhatMoves: a new picture for a new status, until the user has seen enough.
func TestWatchShowsWhatMoves(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"none": "yes"}}}
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	await, end := watched(t, namespace)
	await("1 Module: 1 on the way.")
	m.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, LastTransitionTime: metav1.Now(),
		ObservedGeneration: m.Generation,
	}}
	if err := admin.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	await("All well: 1 Module ready.")
	end()
}

// TestWatchOnAHub: a ManagedClusterModule moves the picture as a Module does.
func TestWatchOnAHub(t *testing.T) {
	e := env.Get(t)
	e.Install(t, "hub")
	scheme := env.NewScheme()
	if err := hubv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(e.AdminConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace := e.Namespace(t)
	m := &hubv1beta1.ManagedClusterModule{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: hubv1beta1.ManagedClusterModuleSpec{
			SpokeNamespace: "drivers", Selector: map[string]string{}, ModuleSpec: v1beta1.ModuleSpec{Selector: map[string]string{}},
		},
	}
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), m) })
	await, end := watched(t, namespace, m.Name)
	await("NotSeen, Ready on 0 of 0 clusters")
	m.Status.ObservedGeneration = m.Generation
	m.Status.NumberDesired, m.Status.NumberReady = 1, 1
	m.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, LastTransitionTime: metav1.Now(),
		ObservedGeneration: m.Generation,
	}}
	m.Status.Clusters = []hubv1beta1.ClusterStatus{{Name: "north", Ready: true, DesiredNumber: 2, AvailableNumber: 2}}
	if err := admin.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	await("Ready, Ready on 1 of 1 clusters.")
	await("north     Ready   2/2")
	end()
}
