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

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/status"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestWatchShowsWhatMoves: a new picture for a new status, until the user has seen enough.
func TestWatchShowsWhatMoves(t *testing.T) {
	e := env.Get(t)
	admin, config, namespace := e.Admin(t), e.AdminConfig(), e.Namespace(t)
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"}, Spec: v1beta1.ModuleSpec{Selector: map[string]string{"none": "yes"}}}
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	reader, writer := io.Pipe()
	flags := genericclioptions.NewConfigFlags(false).WithWrapConfigFn(func(*rest.Config) *rest.Config { return rest.CopyConfig(config) })
	flags.APIServer, flags.Namespace = &config.Host, &namespace
	streams := genericiooptions.IOStreams{Out: writer, ErrOut: io.Discard}
	command := status.NewCommand(flags, streams, clocktesting.NewFakePassiveClock(clitest.Noon))
	command.SetArgs([]string{"--watch"})
	ended := make(chan error, 1)
	go func() {
		err := command.ExecuteContext(ctx)
		_ = writer.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(reader)
	await := func(words string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), words) {
				return
			}
		}
		t.Fatalf("it ended without %q: %v", words, <-ended)
	}

	await("1 Module: 1 on the way.")
	m.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, LastTransitionTime: metav1.Now(), ObservedGeneration: m.Generation,
	}}
	if err := admin.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	await("All well: 1 Module ready.")
	enough()
	for lines.Scan() { // the rest of the picture
	}

	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
