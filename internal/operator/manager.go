// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	ootov1alpha1 "github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/version"
)

// gracePeriod is how long controllers may finish their passes after a signal.
const gracePeriod = 10 * time.Second

// Controller is one of the operator's controllers.
type Controller interface {
	SetupWithManager(ctrl.Manager) error
}

// NewManager makes the manager that runs the controllers. Its clients differ from base in the operator's user agent, and have no limit on
// the client's side; the API server's own priority and fairness knows better what it can bear. It sets o.DRA: the cache asks for each of its
// kinds at once, and ends the process for one that the API server does not serve.
func NewManager(base *rest.Config, o *Options) (ctrl.Manager, error) {
	clients := kube.Hasty(base)
	clients.UserAgent = version.UserAgent(o.Called())
	clients.QPS = -1
	clients.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	scheme, err := newScheme(o.Mode)
	if err != nil {
		return nil, err
	}
	mapper, err := newMapper(clients)
	if err != nil {
		return nil, err
	}
	cached, err := o.cache(mapper)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(clients, ctrl.Options{
		Scheme:         scheme,
		Cache:          cached,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		// Reads wait until the cache has seen our own writes. Every controller relies on it: what it has just written
		// is never written again.
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.New(config, options)
			if err != nil {
				return nil, fmt.Errorf("make the client: %w", err)
			}
			return kube.Patient(c), nil
		},
		// Names are apart by themselves: they are constants, one per controller. Tests run several managers in a process.
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
		Logger:                        o.Log,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure},
		HealthProbeBindAddress:        o.ProbeAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              cmp.Or(o.LeaderElectionID, o.Called()),
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends with the manager
		GracefulShutdownTimeout:       ptr.To(gracePeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	for name, add := range map[string]func(string, healthz.Checker) error{"healthz": mgr.AddHealthzCheck, "readyz": mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
	}
	return mgr, nil
}

// newScheme knows the kinds that an operator of a mode works with.
func newScheme(mode Mode) (*runtime.Scheme, error) {
	adds := []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme, v1alpha1.AddToScheme, ootov1alpha1.AddToScheme}
	switch mode {
	case ModeHub:
		adds = append(adds, hubv1beta1.AddToScheme, clusterv1.Install, workv1.Install)
	case ModeSpoke:
		adds = append(adds, clusterv1alpha1.Install)
	case ModeCluster:
	}
	scheme := runtime.NewScheme()
	for _, add := range adds {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return scheme, nil
}

// cache says what is kept in memory. It sets o.DRA.
func (o *Options) cache(mapper meta.RESTMapper) (cache.Options, error) {
	if o.Mode == ModeHub {
		return hubCache(o.Namespace)
	}
	var err error
	if o.DRA, err = kube.ServesDRA(mapper); err != nil {
		return cache.Options{}, err
	}
	options, err := cacheOptions(o.DRA)
	if err == nil && o.Mode == ModeSpoke {
		spokeCache(&options, o.Namespace)
	}
	return options, err
}

// newMapper makes what knows the kinds that the API server serves. It asks when it is asked.
func newMapper(clients *rest.Config) (meta.RESTMapper, error) {
	connection, err := rest.HTTPClientFor(clients)
	if err != nil {
		return nil, fmt.Errorf("make the connection to the API server: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(clients, connection)
	if err != nil {
		return nil, fmt.Errorf("make the mapper of kinds: %w", err)
	}
	return mapper, nil
}

// carrierUser is nobody in particular: the user of our own images.
const carrierUser = 65532

// CarrierUser is the user of carriers that run a kernel module image, or nil where the cluster assigns users itself: OpenShift gives
// every namespace a range, and refuses others.
func CarrierUser(mapper meta.RESTMapper) (*int64, error) {
	_, err := mapper.ResourceFor(schema.GroupVersionResource{Group: "security.openshift.io", Resource: "securitycontextconstraints"})
	switch {
	case meta.IsNoMatchError(err):
		return ptr.To[int64](carrierUser), nil
	case err != nil:
		return nil, fmt.Errorf("find out whether the cluster assigns users: %w", err)
	}
	return nil, nil
}

// Run starts the controllers that the options enable and returns when ctx ends or the manager fails.
func Run(ctx context.Context, mgr ctrl.Manager, o *Options, controllers map[string]Controller) error {
	for name, controller := range controllers {
		if !o.enabled(name) {
			continue
		}
		if err := controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up controller %s: %w", name, err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}
