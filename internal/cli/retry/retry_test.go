// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/retry"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// noon is the time of all commands.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 500, time.UTC)

func TestRetry(t *testing.T) {
	const key, paused = v1beta1.RetryAnnotation, v1beta1.PausedAnnotation
	type annotations = map[string]string
	cases := map[string]struct {
		module, node annotations
		// args after the namespace; NODE stands for the node's name.
		args []string
		// then are the retries asked for, on the Module and on the node.
		then [2]string
		// says are words in what is printed, complains those in the error or a note.
		says, complains []string
	}{
		"the Module": {
			args: []string{"nic"}, then: [2]string{"2030-01-01T12:00:00Z", ""},
			says: []string{"all nodes of Module", "/nic", "2030-01-01T12:00:00Z", "kubectl get nmc", "kubectl get module nic -n "},
		},
		"a node": {
			args: []string{"nic", "NODE"}, then: [2]string{"", "2030-01-01T12:00:00Z"},
			says: []string{"Asked node NODE", "all Modules", "kubectl get nmc NODE -o yaml"},
		},
		"again": {
			module: annotations{key: "2029-01-01T12:00:00Z"}, args: []string{"nic"}, then: [2]string{"2030-01-01T12:00:00Z", ""},
		},
		"again in the same second": {
			module: annotations{key: "2030-01-01T12:00:00Z"}, args: []string{"nic"}, then: [2]string{"2030-01-01T12:00:01Z", ""},
		},
		"after somebody whose clock is ahead": {
			module: annotations{key: "2030-01-01T14:00:00+01:00"}, args: []string{"nic", "NODE"},
			then: [2]string{"2030-01-01T14:00:00+01:00", "2030-01-01T13:00:01Z"},
		},
		"while paused": {
			node: annotations{paused: ""}, args: []string{"nic", "NODE"}, then: [2]string{"", "2030-01-01T12:00:00Z"},
			complains: []string{"NODE is paused"},
		},
		"no such Module": {args: []string{"nick"}, complains: []string{"Module nick", "not found"}},
		"no such Module, on a node": {
			args: []string{"nick", "NODE"}, complains: []string{"Module nick", "not found"},
		},
		"no such node": {args: []string{"nic", "no-node"}, complains: []string{"Node no-node", "not found"}},
		"no name":      {complains: []string{"accepts between 1 and 2 arg"}},
	}
	e := env.Get(t)
	admin := e.Admin(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := e.Namespace(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-node", Annotations: tc.node}}
			module := &v1beta1.Module{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic", Annotations: tc.module},
				Spec:       v1beta1.ModuleSpec{Selector: map[string]string{"nic": "yes"}},
			}
			for _, object := range []client.Object{node, module} {
				if err := admin.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			named := func(text string) string { return strings.ReplaceAll(text, "NODE", node.Name) }

			out, complaint := run(t, e.AdminConfig(), namespace, named(strings.Join(tc.args, " ")))

			for _, word := range tc.says {
				if !strings.Contains(out, named(word)) {
					t.Errorf("it does not say %q:\n%s", named(word), out)
				}
			}
			for _, word := range tc.complains {
				if !strings.Contains(complaint, named(word)) {
					t.Errorf("it does not complain of %q: %s", named(word), complaint)
				}
			}
			if (len(tc.complains) > 0) != (complaint != "") {
				t.Errorf("it complains: %s", complaint)
			}
			for i, object := range []client.Object{module, node} {
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Fatal(err)
				}
				if got := object.GetAnnotations()[key]; got != tc.then[i] {
					t.Errorf("%T: retry %q, want %q", object, got, tc.then[i])
				}
			}
		})
	}
}

// TestRetryOnAHub: what is no Module of the namespace may be a ManagedClusterModule.
func TestRetryOnAHub(t *testing.T) {
	e := env.Get(t)
	e.Install(t, "hub")
	admin := e.Admin(t)
	if err := hubv1beta1.AddToScheme(admin.Scheme()); err != nil {
		t.Fatal(err)
	}
	namespace := e.Namespace(t)
	managed := &hubv1beta1.ManagedClusterModule{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-nic"},
		Spec: hubv1beta1.ManagedClusterModuleSpec{
			SpokeNamespace: namespace, Selector: map[string]string{"nic": "yes"},
			ModuleSpec: v1beta1.ModuleSpec{Selector: map[string]string{"nic": "yes"}},
		},
	}
	if err := admin.Create(t.Context(), managed); err != nil {
		t.Fatal(err)
	}

	out, complaint := run(t, e.AdminConfig(), namespace, managed.Name)

	if complaint != "" || !strings.Contains(out, "ManagedClusterModule "+managed.Name) {
		t.Errorf("it says %q and complains %q", out, complaint)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(managed), managed); err != nil {
		t.Fatal(err)
	}
	if got := managed.Annotations[v1beta1.RetryAnnotation]; got != "2030-01-01T12:00:00Z" {
		t.Errorf("retry %q", got)
	}
	if _, complaint := run(t, e.AdminConfig(), namespace, "nick"); !strings.Contains(complaint, "Module nick") {
		t.Errorf("of what is neither, it complains %q", complaint)
	}
}

// run is the command's output, and its error or what it wrote beside.
func run(t *testing.T, config *rest.Config, namespace, args string) (out, complaint string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	flags := genericclioptions.NewConfigFlags(false).WithWrapConfigFn(func(*rest.Config) *rest.Config { return rest.CopyConfig(config) })
	flags.APIServer, flags.Namespace = &config.Host, &namespace
	command := retry.NewCommand(flags, streams, clocktesting.NewFakePassiveClock(noon))
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(strings.Fields(args))
	if err := command.ExecuteContext(t.Context()); err != nil {
		return stdout.String(), err.Error()
	}
	return stdout.String(), stderr.String()
}
