// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drover-project/drover/internal/shared/kube/process"
	"github.com/drover-project/drover/internal/shared/tracing/otlp"
)

// NamespaceVariable is the environment variable with the namespaces in which the operator works,
// with commas between; unset or empty: all.
const NamespaceVariable = "WATCH_NAMESPACE"

// Program is an operator's process.
type Program struct {
	// Name of the program, its Lease and its user agent. Required.
	Name string
	// AddToScheme register the operator's kinds. Those of client-go are there already.
	AddToScheme []func(*runtime.Scheme) error
	// Requires are checked before the operator starts, see [Requires].
	Requires []Requirement
	// Cache, if set, narrows what the manager keeps in memory, such as to pods with a label.
	Cache func(o *cache.Options)
	// Flags, if set, adds flags of the program's own. They are read before Setup is called.
	Flags func(set *flag.FlagSet)
	// Setup registers the controllers, with [Add]. Required.
	Setup func(mgr ctrl.Manager) error
}

// Options come from the flags and the environment.
type Options struct {
	// MetricsAddress serves metrics; "0" is off.
	MetricsAddress string
	// MetricsSecure serves metrics by HTTPS, to those whom the API server lets get /metrics.
	MetricsSecure bool
	// ProbeAddress serves /healthz and /readyz; "0" is off.
	ProbeAddress string
	// LeaderElect lets several processes stand by for each other.
	LeaderElect bool
	// Namespaces to work in; none: all.
	Namespaces []string
	// Log is the process's logger.
	Log logr.Logger

	tracing otlp.Options
	traces  *otlp.Provider
}

// Main is the main function of an operator. It returns after a signal to end, and exits with
// status 1 and a message on an error.
func Main(p Program) {
	process.Main(p.Name, p.main)
}

func (p Program) main(ctx context.Context, args []string) error {
	options, err := p.ParseFlags(args, os.Getenv)
	if err != nil {
		return err
	}
	cluster, err := process.Cluster(options.Log)
	if err != nil {
		return err
	}
	return p.Run(ctx, cluster, options)
}

// ParseFlags reads the arguments, without the program's name, and the environment. The error is
// flag.ErrHelp if help was asked for.
func (p Program) ParseFlags(args []string, getenv func(string) string) (*Options, error) {
	o := &Options{}
	set := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	set.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address that serves metrics; 0: none")
	set.BoolVar(&o.MetricsSecure, "metrics-secure", true, "serve metrics by HTTPS, to those whom the API server lets get /metrics")
	set.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0: none")
	set.BoolVar(&o.LeaderElect, "leader-elect", false, "elect a leader, so that other processes can stand by")
	o.tracing.AddFlags(set)
	if p.Flags != nil {
		p.Flags(set)
	}
	var err error
	if o.Log, err = process.Parse(set, args); err != nil {
		return nil, err
	}
	if o.Namespaces, err = namespaces(getenv(NamespaceVariable)); err != nil {
		return nil, err
	}
	return o, errors.Join(checkAddress("metrics-bind-address", o.MetricsAddress), checkAddress("health-probe-bind-address", o.ProbeAddress))
}

func namespaces(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var names []string
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %q is not a namespace's name: %s", NamespaceVariable, name, strings.Join(problems, "; "))
		}
		names = append(names, name)
	}
	return names, nil
}

var address = regexp.MustCompile(`^(0|.*:[0-9]{1,5})$`)

func checkAddress(name, value string) error {
	if address.MatchString(value) {
		return nil
	}
	return fmt.Errorf("--%s: %q is neither HOST:PORT nor 0", name, value)
}

// Run runs the operator in a cluster until ctx ends.
func (p Program) Run(ctx context.Context, cluster *rest.Config, o *Options) error {
	var err error
	if o.traces, err = o.tracing.Start(ctx, p.Name); err != nil {
		return err
	}
	defer o.traces.Stop()
	mgr, err := p.NewManager(cluster, o)
	if err != nil {
		return err
	}
	if err := Requires(ctx, mgr.GetAPIReader(), mgr.GetScheme(), mgr.GetRESTMapper(), p.Requires...); err != nil {
		return err
	}
	if err := p.Setup(mgr); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

// NewManager makes the manager that [Program.Run] starts.
func (p Program) NewManager(cluster *rest.Config, o *Options) (ctrl.Manager, error) {
	scheme, err := process.Scheme(append([]func(*runtime.Scheme) error{apiextensionsv1.AddToScheme}, p.AddToScheme...)...)
	if err != nil {
		return nil, err
	}
	metrics := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure}
	if o.MetricsSecure {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	cached := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if len(o.Namespaces) > 0 {
		cached.DefaultNamespaces = map[string]cache.Config{}
		for _, name := range o.Namespaces {
			cached.DefaultNamespaces[name] = cache.Config{}
		}
	}
	if p.Cache != nil {
		p.Cache(&cached)
	}
	return process.NewManager(process.Clients(o.traces.Wrap(cluster), p.Name), ctrl.Options{
		BaseContext:            o.traces.BaseContext,
		Scheme:                 scheme,
		Cache:                  cached,
		Logger:                 o.Log,
		Metrics:                metrics,
		HealthProbeBindAddress: o.ProbeAddress,
		LeaderElection:         o.LeaderElect,
		LeaderElectionID:       p.Name,
	})
}

// Gauge is a metric with one series per object.
type Gauge struct{ vec *prometheus.GaugeVec }

// NewGauge makes a gauge that the manager serves, or returns the one of the same name and labels.
// It panics if Prometheus refuses the name or the labels.
func NewGauge(name, help string, labels ...string) *Gauge {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	err := metrics.Registry.Register(vec)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if same, ok := there.ExistingCollector.(*prometheus.GaugeVec); ok {
			return &Gauge{vec: same}
		}
	}
	if err != nil {
		panic(err)
	}
	return &Gauge{vec: vec}
}

// Set gives the series of these labels' values a value.
func (g *Gauge) Set(value float64, labels ...string) { g.vec.WithLabelValues(labels...).Set(value) }

// Forget removes the series of these labels' values.
func (g *Gauge) Forget(labels ...string) { g.vec.DeleteLabelValues(labels...) }
