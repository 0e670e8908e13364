// SPDX-License-Identifier: Apache-2.0

// Package process starts a process of controllers, Drover's own and those that stand on the kit.
// The kit adds what costs 30 MB of program and 17 MB of memory, the authorization of who reads
// metrics.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/shared/words"
)

// gracePeriod is how long controllers may finish their passes after a signal.
const gracePeriod = 10 * time.Second

// Main runs a program until it ends, or a signal ends it. After an error it exits with 1 and a
// message.
func Main(name string, run func(ctx context.Context, args []string) error) {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintf(words.Writer(os.Stderr), "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse adds the flags of logging and of the cluster to the program's, and reads a command line. It
// returns the process's logger, or flag.ErrHelp when help was asked for.
func Parse(set *flag.FlagSet, args []string) (logr.Logger, error) {
	ctrlconfig.RegisterFlags(set)
	logging := textlogger.NewConfig(textlogger.Output(words.Writer(os.Stderr)))
	logging.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return logr.Logger{}, fmt.Errorf("parse flags: %w", err)
	}
	if set.NArg() > 0 {
		return logr.Logger{}, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return textlogger.NewLogger(logging), nil
}

// Cluster finds the cluster, and makes logger the one of all libraries.
func Cluster(logger logr.Logger) (*rest.Config, error) {
	klog.SetLogger(logger)
	ctrl.SetLogger(logger)
	cluster, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return cluster, nil
}

// Scheme knows the built-in kinds and those that are added.
func Scheme(add ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	kinds := append(runtime.SchemeBuilder{clientgoscheme.AddToScheme}, add...)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the kinds: %w", err)
	}
	return scheme, nil
}

// Clients are base with the program's user agent. They send without a limit: the API server knows
// better what it can bear.
func Clients(base *rest.Config, name string) *rest.Config {
	clients := rest.CopyConfig(base)
	clients.UserAgent = version.UserAgent(name)
	clients.QPS = -1
	clients.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	return clients
}

// NewManager makes a manager of [Clients], with probes. It sets those of the options that are the
// same for every program.
func NewManager(clients *rest.Config, o ctrl.Options) (ctrl.Manager, error) {
	// Reads wait until the cache has seen our own writes: what has just been written is not written
	// again.
	o.Client = client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}}
	o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.New(config, options)
		if err != nil {
			return nil, fmt.Errorf("make the client: %w", err)
		}
		informers, _ := options.Cache.Reader.(cache.Informers)
		return kube.Patient(c, informers, kube.Patience), nil
	}
	// Tests run several managers in a process.
	o.Controller = config.Controller{SkipNameValidation: ptr.To(true)}
	o.LeaderElectionReleaseOnCancel = true // the process ends with the manager
	o.GracefulShutdownTimeout = ptr.To(gracePeriod)
	mgr, err := ctrl.NewManager(clients, o)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("add the probes: %w", err)
	}
	return mgr, nil
}
