// SPDX-License-Identifier: Apache-2.0

// Package component holds the programs that the binary contains, each under
// the name it is called by.
package component

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The names of the components.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Kubectl           = "kubectl"
)

// Names lists all components.
func Names() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok, Kubectl}
}

// ForgetGlobalFlags drops the flags that packages of Kubernetes define for the
// whole process: cobra gives them to every command, where they clash with kwok's
// --version and clutter the help.
func ForgetGlobalFlags() { pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError) }

// Lookup returns the program called name. It reads os.Args, runs until it is
// done and returns the exit code.
func Lookup(name string) (program func() int, ok bool) {
	switch name {
	case Etcd:
		return runEtcd, true
	case APIServer:
		return runAPIServer, true
	case ControllerManager:
		return func() int { return cli.Run(controllers.NewControllerManagerCommand()) }, true
	case Scheduler:
		return func() int { return cli.Run(scheduler.NewSchedulerCommand()) }, true
	case Kwok:
		return runKwok, true
	case Kubectl:
		return runKubectl, true
	default:
		return nil, false
	}
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runAPIServer() int {
	if err := useOwnHostsFile(); err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		return 1
	}
	return cli.Run(apiserver.NewAPIServerCommand())
}

func runKubectl() int {
	// kubectl logs while it builds its command tree, before it parses -v. An
	// odd -v is reported by that parsing, later.
	_, _ = logs.GlogSetter(logVerbosity(os.Args[1:]))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

// logVerbosity is the value of -v among arguments; "0" without one. kubectl has such a function
// only in newer releases.
func logVerbosity(args []string) string {
	flags := pflag.NewFlagSet("verbosity", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	level := flags.StringP("v", "v", "0", "")
	if err := flags.Parse(args); err != nil {
		return "0"
	}
	return *level
}
