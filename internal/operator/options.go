// SPDX-License-Identifier: Apache-2.0

// Package operator sets up the process around the operator's controllers: flags, logging, the
// manager, and what its cache holds.
package operator

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/kube/process"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/profile"
	"github.com/drover-project/drover/internal/shared/tracing/otlp"
)

// Name is the operator's name: its user agent's beginning, its Lease, its ServiceAccount.
const Name = "drover-operator"

const (
	namespaceVariable = "OPERATOR_NAMESPACE"
	defaultNamespace  = "drover-system"
	// managedVariable is upstream's.
	managedVariable = "KMM_MANAGED"
)

// Mode is what an operator does in its cluster.
type Mode string

const (
	// ModeCluster makes images and loads them, for the Modules of this cluster.
	ModeCluster Mode = "cluster"
	// ModeSpoke loads what a hub sends. The hub makes the images: nothing is built, signed or checked
	// ahead here.
	ModeSpoke Mode = "spoke"
	// ModeHub makes images, and brings Modules to the clusters of ManagedClusterModules. No node of
	// this cluster is touched.
	ModeHub Mode = "hub"
)

// HubName is the name of an operator in [ModeHub]: of its Lease, its ServiceAccount and its
// Deployment. It stands beside one of this cluster's nodes.
const HubName = "drover-hub"

// Options are the operator's flags.
type Options struct {
	// Mode is what the operator does.
	Mode Mode
	// Namespace the operator runs in. The leader's Lease is there.
	Namespace string
	// Orders are for the controller that gives orders to nodes. No flags: DRA, which [NewManager]
	// finds out, CarrierUser and Taints, which depend on the API server, too.
	Orders module.Options
	// Build says how Jobs examine, build and sign images. See [Options.Makes] and [Options.Examines].
	Build pipeline.Options
	// Controllers lists the controllers to run: "*" is all but the optional ones, a leading "-" takes
	// one out.
	Controllers []string
	// NodeCondition keeps a condition of Nodes.
	NodeCondition bool
	// StartupTaints are those that Modules may name.
	StartupTaints modulepolicy.Taints
	// UnloadTaints are those that ask for an unload.
	UnloadTaints placement.UnloadTaints
	// NodeBudget bounds the nodes that all Modules together make unavailable.
	NodeBudget budget.Limit
	// MetricsAddress serves metrics; "0" is off.
	MetricsAddress string
	// ProbeAddress serves /healthz and /readyz; "0" is off.
	ProbeAddress string
	// MetricsSecure serves metrics by HTTPS, with a certificate of its own making, and asks the API
	// server who reads them and whether they may.
	MetricsSecure bool
	// ProfileAddress serves profiles of the process below /debug/pprof; "0" is off.
	ProfileAddress string
	// LeaderElectionID is the name of the leader's Lease.
	LeaderElectionID string
	// Notes are remarks on the configuration, for the log.
	Notes []string
	// LeaderElect lets several operators stand by for each other.
	LeaderElect bool
	// Tracing says where spans are sent.
	Tracing otlp.Options
	// Traces makes the spans; no flag, and nil until somebody starts it.
	Traces *otlp.Provider
	// Log is the process's logger.
	Log logr.Logger
	// Clock is the controllers' time; no flag, and the time of day unless set.
	Clock clock.PassiveClock
}

// ParseFlags reads the command line, without the program's name. It returns flag.ErrHelp when help
// was asked for.
func ParseFlags(args []string) (*Options, error) {
	o := &Options{}
	var mode, delivers, controllers, config, requests, limits, nodes string
	set := flag.NewFlagSet(Name, flag.ContinueOnError)
	set.StringVar(&mode, "mode", string(defaultMode(os.Getenv)), "what the operator does: cluster (images and nodes of this cluster), hub "+
		"(images, and Modules for other clusters) or spoke (nodes only: a hub makes the images)")
	set.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv(namespaceVariable), defaultNamespace),
		"namespace of the operator; default from $"+namespaceVariable)
	set.StringVar(&o.Orders.AgentImage, "agent-image", "", "image of drover-agent, for the pods that deliver images (required, but for a hub)")
	set.StringVar(&delivers, "delivery-mode", string(delivery.ModeAuto), "how the pods that deliver, and native builds, read an image: "+
		"imageVolume, initContainer (builds: a step that unpacks it), or auto to choose by nodes")
	set.IntVar(&o.Orders.DeliveryMaxInFlight, "delivery-max-in-flight", 100, "most deliveries under way; fewer while the API server is slow")
	set.StringVar(&o.Build.SignerImage, "signer-image", "", "image of drover-signer; without it, nothing is built or signed in "+
		"the cluster. Needs the rights of config/build")
	set.StringVar(&o.Build.ExaminerImage, "examiner-image", "", "this operator's own image; with it, preflights examine images without a "+
		"signer image")
	set.StringVar(&o.Build.BuildahImage, "build-image", "", "image of Buildah, by digest, for builds from Dockerfiles")
	set.BoolVar(&o.Build.HostModules, "build-host-modules", true, "mount the node's /lib/modules into builds from Dockerfiles; needs "+
		"namespaces that admit hostPath")
	set.DurationVar(&o.Build.Deadline, "build-timeout", 2*time.Hour, "how long the Job of an image may take")
	set.StringVar(&requests, "build-requests", pipeline.DefaultBuildRequests, "requests of the containers that compile, unless a Module has "+
		"build.resources")
	set.StringVar(&limits, "build-limits", pipeline.DefaultBuildLimits, "their limits")
	set.StringVar(&nodes, "job-selector", "", "labels (a=b,c=d) of the nodes for Jobs of Modules without build.selector and "+
		"sign.selector; without it, the Module's own selector; a hub's any node")
	set.IntVar(&o.Orders.Parallelism, "parallelism", 32, "how many writes may be under way per Module")
	set.StringVar(&controllers, "controllers", "*", "controllers to run, separated by commas: * is all but "+strings.Join(optional, ", ")+
		"; -name leaves one out")
	o.addNodeFlags(set)
	set.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "where metrics are served; 0 is nowhere")
	set.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 is nowhere")
	set.BoolVar(&o.MetricsSecure, "metrics-secure", true, "serve metrics by HTTPS, with a certificate of its own making, to those whom the "+
		"API server lets get /metrics; off: by plain HTTP, to everyone who reaches the address")
	set.StringVar(&o.ProfileAddress, "pprof-bind-address", profile.Off,
		"loopback address of /debug/pprof, such as 127.0.0.1:6060; 0 is nowhere")
	set.BoolVar(&o.LeaderElect, "leader-elect", true, "elect a leader, so that several operators can stand by")
	set.StringVar(&o.LeaderElectionID, "leader-election-id", "", "name of the leader's Lease; default "+Name+", or "+HubName+" for a hub")
	set.StringVar(&config, "config", "", "file with the keys of upstream's "+configKey+", or the directory where that ConfigMap is "+
		"mounted; flags win")
	o.Tracing.AddFlags(set)
	var err error
	if o.Log, err = process.Parse(set, args); err != nil {
		return nil, err
	}
	o.Controllers = strings.Split(controllers, ",")
	if err := o.readConfig(config, set); err != nil {
		return nil, err
	}
	if o.Mode, err = parseMode(mode); err != nil {
		return nil, fmt.Errorf("--mode: %w", err)
	}
	if o.Orders.DeliveryMode, err = delivery.ParseMode(delivers); err != nil {
		return nil, fmt.Errorf("--delivery-mode: %w", err)
	}
	if err := o.readJobs(requests, limits, nodes); err != nil {
		return nil, err
	}
	o.LeaderElectionID = cmp.Or(o.LeaderElectionID, o.Called())
	return o, o.validate()
}

// readJobs parses what flags say about Jobs: requests and limits of builds, and labels of nodes.
func (o *Options) readJobs(requests, limits, nodes string) (err error) {
	if o.Build.BuildRequests, err = pipeline.ParseResources(requests); err != nil {
		return fmt.Errorf("--build-requests: %w", err)
	}
	if o.Build.BuildLimits, err = pipeline.ParseResources(limits); err != nil {
		return fmt.Errorf("--build-limits: %w", err)
	}
	if o.Build.Selector, err = labels.ConvertSelectorToLabelsMap(nodes); err != nil {
		return fmt.Errorf("--job-selector: %w", err)
	}
	return nil
}

// addNodeFlags are about what is written on Node objects, or read there.
func (o *Options) addNodeFlags(set *flag.FlagSet) {
	set.BoolVar(&o.NodeCondition, "node-condition", false, "keep the condition "+v1beta1.NodeConditionKernelModules+" of nodes; needs the "+
		"rights of config/node-condition")
	set.Func("startup-taints", "`keys` of taints, separated by commas and each as [NAMESPACE:]KEY or [NAMESPACE:]BEGINNING*, that Modules "+
		"(of the namespace) may have removed by spec.startupTaint, besides <namespace>"+modulepolicy.OwnTaints+"<name>",
		func(text string) (err error) {
			o.StartupTaints, err = modulepolicy.ParseTaints(text)
			return err
		})
	set.Func("unload-taints", "`keys` of taints, separated by commas, that ask for an unload: a node that gets one with the effect "+
		"NoSchedule or NoExecute unloads at once all Modules that do not tolerate it, and loads them again when it goes",
		func(text string) (err error) {
			o.UnloadTaints, err = placement.ParseUnloadTaints(text)
			return err
		})
	set.StringVar(&o.NodeBudget.Nodes, "max-unavailable-nodes", "", "how many nodes (a number, or a percentage) the changes of all Modules "+
		"together may make unavailable at a time, beside each Module's own maxUnavailable; default: any number")
	set.StringVar(&o.NodeBudget.PoolLabel, "node-pool-label", "", "node label whose values are pools of nodes, each with a limit of its own "+
		"by --max-unavailable-nodes; default: all nodes are one pool")
}

// readConfig takes from a file what no flag says.
func (o *Options) readConfig(file string, flags *flag.FlagSet) error {
	if file == "" {
		return nil
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := o.loadConfig(file, given); err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	return nil
}

// defaultMode is a spoke's where the environment has what upstream's bundle for spokes sets.
func defaultMode(env func(string) string) Mode {
	if managed, err := strconv.ParseBool(env(managedVariable)); err == nil && managed {
		return ModeSpoke
	}
	return ModeCluster
}

func parseMode(text string) (Mode, error) {
	mode := Mode(text)
	if !slices.Contains([]Mode{ModeCluster, ModeSpoke, ModeHub}, mode) {
		return "", fmt.Errorf("%q is not %s, %s or %s", text, ModeCluster, ModeSpoke, ModeHub)
	}
	return mode, nil
}

// Called is the operator's name in its mode.
func (o *Options) Called() string {
	if o.Mode == ModeHub {
		return HubName
	}
	return Name
}

func (o *Options) validate() error {
	var errs []error
	if o.Orders.AgentImage == "" && o.Mode != ModeHub {
		errs = append(errs, errors.New("--agent-image must be set"))
	}
	if o.Orders.DeliveryMaxInFlight < 1 {
		errs = append(errs, errors.New("--delivery-max-in-flight must be at least 1"))
	}
	if o.Orders.Parallelism < 1 {
		errs = append(errs, errors.New("--parallelism must be at least 1"))
	}
	if err := o.NodeBudget.Check(); err != nil {
		errs = append(errs, fmt.Errorf("--max-unavailable-nodes: %w", err))
	}
	if err := profile.Check(o.ProfileAddress); err != nil {
		errs = append(errs, fmt.Errorf("--pprof-bind-address %w", err))
	}
	return errors.Join(errs...)
}

// Module are the options of the controller that gives orders to nodes.
func (o *Options) Module(recorder kube.Recorder, g *gate.Gate, numbers *metrics.Board) module.Options {
	m := o.Orders
	m.Clock, m.UnloadTaints = o.Time(), o.UnloadTaints
	m.Recorder, m.Gate, m.Metrics, m.Images = recorder, g, numbers, o.Makes()
	if name, err := os.Hostname(); err == nil { // else drains know no pod to spare
		m.Self = types.NamespacedName{Namespace: o.Namespace, Name: name}
	}
	return m
}

// Time is the clock of the controllers.
func (o *Options) Time() clock.PassiveClock {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// Makes reports whether images are built and signed in the cluster.
func (o *Options) Makes() bool {
	return o.Mode != ModeSpoke && o.Build.SignerImage != "" && o.enabled("image")
}

// Examines reports whether preflights can have images examined in the cluster.
func (o *Options) Examines() bool {
	return o.Makes() || o.Mode == ModeCluster && o.Build.ExaminerImage != "" && o.enabled("image")
}

// Images are the options of the controller that has images built, signed and examined.
func (o *Options) Images(g *gate.Gate) moduleimage.Options {
	mine := func(image *v1alpha1.ModuleImage) bool {
		return hub.Asked(image) == (o.Mode == ModeHub) && (o.Makes() || pipeline.OnlyExamined(&image.Spec))
	}
	p := o.Build
	p.User, p.Delivery, p.Hub = o.Orders.CarrierUser, o.Orders.DeliveryMode, o.Mode == ModeHub
	return moduleimage.Options{Gate: g, Mine: mine, Pipeline: p, Clock: o.Time()}
}

// optional are the controllers that run only where they are named: the cluster need not have what
// they work on.
var optional = []string{"ooto"}

// enabled reports whether a controller runs. The last mention of a name wins over "*".
func (o *Options) enabled(name string) bool {
	on := slices.Contains(o.Controllers, "*") && !slices.Contains(optional, name)
	for _, item := range o.Controllers {
		switch strings.TrimSpace(item) {
		case name:
			on = true
		case "-" + name:
			on = false
		}
	}
	return on
}
