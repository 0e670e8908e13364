// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	ootov1alpha1 "github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/kube/process"
)

// Controller is one of the operator's controllers.
type Controller interface {
	SetupWithManager(ctrl.Manager) error
}

// NewManager makes the manager that runs the controllers. It sets o.Orders.DRA: the cache asks for
// each of its kinds at once, and ends the process for one that the API server does not serve.
func NewManager(base *rest.Config, o *Options) (ctrl.Manager, error) {
	clients := kube.Hasty(process.Clients(o.Traces.Wrap(base), o.Called()))
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
	return process.NewManager(clients, ctrl.Options{
		Scheme:                  scheme,
		Cache:                   cached,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		BaseContext:             o.Traces.BaseContext,
		Logger:                  o.Log,
		Metrics:                 o.metrics(),
		HealthProbeBindAddress:  o.ProbeAddress,
		PprofBindAddress:        o.ProfileAddress,
		LeaderElection:          o.LeaderElect,
		LeaderElectionID:        cmp.Or(o.LeaderElectionID, o.Called()),
		LeaderElectionNamespace: o.Namespace,
	})
}

func (o *Options) metrics() metricsserver.Options {
	served := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure}
	if o.MetricsSecure {
		served.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return served
}

// newScheme knows the kinds that an operator of a mode works with.
func newScheme(mode Mode) (*runtime.Scheme, error) {
	adds := []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1beta2.AddToScheme, v1alpha1.AddToScheme, ootov1alpha1.AddToScheme}
	switch mode {
	case ModeHub:
		adds = append(adds, hubv1beta1.AddToScheme, clusterv1.Install, workv1.Install)
	case ModeSpoke:
		adds = append(adds, clusterv1alpha1.Install)
	case ModeCluster:
	}
	return process.Scheme(adds...)
}

// cache says what is kept in memory. It sets o.Orders.DRA.
func (o *Options) cache(mapper meta.RESTMapper) (cache.Options, error) {
	if o.Mode == ModeHub {
		return hubCache(o.Namespace)
	}
	var err error
	if o.Orders.DRA, err = kube.ServesDRA(mapper); err != nil {
		return cache.Options{}, err
	}
	options, err := CacheOptions(o.Orders.DRA, o.Makes() || o.enabled("ooto"))
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

// CarrierUser is the user of carriers that run a kernel module image, or nil where the cluster
// assigns users itself: OpenShift gives every namespace a range, and refuses others.
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

// SetUp registers the controllers that the options enable, in the order of their names.
func (o *Options) SetUp(mgr ctrl.Manager, controllers map[string]Controller) error {
	for _, name := range slices.Sorted(maps.Keys(controllers)) {
		if !o.enabled(name) {
			continue
		}
		if err := controllers[name].SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up controller %s: %w", name, err)
		}
	}
	return nil
}

// Run starts the controllers that the options enable and returns when ctx ends or the manager
// fails.
func Run(ctx context.Context, mgr ctrl.Manager, o *Options, controllers map[string]Controller) error {
	if err := o.SetUp(mgr, controllers); err != nil {
		return err
	}
	fill := func(ctx context.Context) error { return filled(ctx, os.Getenv, mgr.GetCache(), o.grows()...) }
	if err := mgr.Add(manager.RunnableFunc(fill)); err != nil {
		return fmt.Errorf("add what waits for the caches: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}
