// SPDX-License-Identifier: Apache-2.0

// Package clitest runs commands of the command line tool against a test's API server.
package clitest

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/testkit/env"
)

// Noon is the time of all commands.
var Noon = time.Date(2030, 1, 1, 12, 0, 0, 500, time.UTC)

// New makes a command.
type New func(*genericclioptions.ConfigFlags, genericiooptions.IOStreams, clock.PassiveClock) *cobra.Command

// Run is the command's output and exit code. A failure's message is part of the output.
func Run(t testing.TB, config *rest.Config, namespace string, newCommand New, args ...string) (out string, code int) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	flags := genericclioptions.NewConfigFlags(false).WithWrapConfigFn(func(*rest.Config) *rest.Config { return rest.CopyConfig(config) })
	flags.APIServer, flags.Namespace = &config.Host, &namespace
	command := newCommand(flags, streams, clocktesting.NewFakePassiveClock(Noon))
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(t.Context())
	code, tell := exit.Code(err)
	if tell {
		stderr.WriteString(err.Error())
	}
	return stdout.String() + stderr.String(), code
}

// Viewer is a user with a ClusterRole, in the whole cluster or, with a namespace, only there.
func Viewer(t testing.TB, e *env.Env, role, namespace string) *rest.Config {
	t.Helper()
	name := "reader-" + e.Namespace(t)
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}
	if namespace != "" {
		binding = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, RoleRef: ref, Subjects: subjects}
	}
	if err := e.Admin(t).Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	return e.UserConfig(t, name)
}
