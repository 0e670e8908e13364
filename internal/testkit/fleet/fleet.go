// SPDX-License-Identifier: Apache-2.0

// Package fleet starts the whole of Drover on an embedded control plane: CRDs, policies, roles, the
// operator as a process under its own ServiceAccount, and hollow nodes (real agents over fake
// kernels). The demo, benches and chaos tests stand on it.
package fleet

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/source"
)

// bodiesPolicy is devcluster's audit policy with the bodies of some answers.
//
//go:embed audit-policy.yaml
var bodiesPolicy []byte

// requestsPolicy is devcluster's audit policy with what was sent to write some objects.
//
//go:embed requests-policy.yaml
var requestsPolicy []byte

// startPatience bounds the control plane's start: seconds, but for a machine that is busy with
// other builds.
const startPatience = 10 * time.Minute

// The hollow nodes' registration is bounded, too, and each node takes its time.
const (
	registerPatience = 3 * time.Minute
	registerNode     = 100 * time.Millisecond
)

// graceBeats is how many renewals a node may miss until the cluster calls it unknown, and
// statusBeats is after how many its unchanged status is written, both as by default.
const (
	graceBeats  = 5
	statusBeats = 30
)

// Namespace is where Drover runs.
const Namespace = "drover-system"

// Options say what to start.
type Options struct {
	// Nodes is the number of hollow nodes, Kernels the versions they run, spread evenly.
	Nodes   int
	Kernels []string
	// NodeLabels are put on every hollow node.
	NodeLabels map[string]string
	// ImagePattern is a regular expression; images that do not match do not exist. Empty: all exist.
	ImagePattern string
	// ControllerQPS of kube-controller-manager; 0 for devcluster's default.
	ControllerQPS int
	APIServerPort int      // 0 for a free one
	ExtraSANs     []string // further names in the API server's certificate
	// Dir holds state and logs; empty for a temporary folder that Stop removes.
	Dir string
	// Faults are given to the hollow nodes, for example "agent-off".
	Faults []string
	// OperatorArgs are added to the operator's command line.
	OperatorArgs []string
	// HollowArgs are added to the hollow nodes' command line.
	HollowArgs []string
	// LeasePeriod is how often hollow nodes renew their leases; 0 is the kubelet's 10 s. With a longer
	// one, they write their unchanged status less often, too, and the cluster waits for longer until
	// it calls a node unknown.
	LeasePeriod time.Duration
	// DiskSize gives each agent a disk of its own of so many bytes, which can be full; 0: none.
	DiskSize int64
	// InMemory keeps the nodes' disks in memory, where the system lets us: nodes have disks of their
	// own, and the control plane does not wait for those.
	InMemory bool
	// WithoutPolicies leaves the admission policies out.
	WithoutPolicies bool
	// Bare leaves Drover out, its CRDs included, and starts the control plane alone.
	Bare bool
	// Later leaves Drover out, too, but has hollow nodes, without agents: see Install.
	Later bool
	// Ooto has Drover serve Modules of the older group ooto.sigs.k8s.io, too.
	Ooto bool
	// Spoke has the operator work for a hub, with the smaller role.
	Spoke bool
	// KeepBodies has the audit log hold what every write left of Nodes and of Drover's own kinds.
	KeepBodies bool
	// KeepRequests has the audit log hold what was sent to write Nodes, pods, DaemonSets and
	// NodeModulesConfigs.
	KeepRequests bool
	// Release is the version that is installed; nil for that of these sources. See Release.
	Release *Release
	// Say receives progress, one line each.
	Say func(format string, args ...any)
}

// Fleet is a running cluster with Drover.
type Fleet struct {
	Cluster *devcluster.Cluster
	// Admin is the administrator's client.
	Admin client.Client
	// AdminConfig is the administrator's connection.
	AdminConfig *rest.Config
	// Operator and Hollow are the processes; nil when stopped.
	Operator, Hollow *Process

	o         Options
	dir       string
	temporary bool
	root      string
	assets    string
	debug     string
	// ours is the version of these sources; installed, operated and hollow are those of which the
	// objects, the operator and the agents are.
	ours, installed, operated, hollow Release
	// operator is the operator's kubeconfig, once it is written: it starts again while the API server
	// is away.
	operator string
}

// Start brings everything up and returns when the hollow nodes are registered. The caller must
// Stop.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	f := &Fleet{o: o, dir: o.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	if f.dir == "" {
		f.temporary = true
		if f.dir, err = os.MkdirTemp("", "drover-fleet-"); err != nil {
			return f, fmt.Errorf("make a folder for the fleet: %w", err)
		}
	}
	if err := f.build(ctx); err != nil {
		return f, err
	}
	if err := f.startCluster(ctx); err != nil {
		return f, err
	}
	if err := f.connect(); err != nil || o.Bare {
		return f, err
	}
	if o.Later {
		return f, f.startNodes(ctx)
	}
	if err := f.install(ctx); err != nil {
		return f, err
	}
	if err := f.StartHollow(ctx); err != nil {
		return f, err
	}
	return f, f.StartOperator(ctx)
}

func (f *Fleet) startCluster(ctx context.Context) error {
	f.o.Say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok")
	o := devcluster.Options{
		Dir: filepath.Join(f.dir, "cluster"), WithKwok: true, ReadyTimeout: startPatience,
		ControllerQPS: f.o.ControllerQPS, ControllerBurst: 2 * f.o.ControllerQPS, APIServerPort: f.o.APIServerPort, ExtraSANs: f.o.ExtraSANs,
	}
	if f.o.LeasePeriod > 0 {
		o.Args = append(o.Args, fmt.Sprintf("--kcm-arg=--node-monitor-grace-period=%s", graceBeats*f.o.LeasePeriod))
	}
	if content := f.auditPolicy(); content != nil {
		policy := filepath.Join(f.dir, "audit-policy.yaml")
		if err := errors.Join(os.MkdirAll(f.dir, 0o755), os.WriteFile(policy, content, 0o644)); err != nil {
			return fmt.Errorf("write the audit policy: %w", err)
		}
		o.Args = append(o.Args, "--apiserver-arg=--audit-policy-file="+policy)
	}
	var err error
	if f.Cluster, err = devcluster.Start(ctx, o); err != nil {
		return err
	}
	f.o.Say("control plane ready in %.1f s", f.Cluster.Seconds)
	return nil
}

// auditPolicy is another than devcluster's own, or nil.
func (f *Fleet) auditPolicy() []byte {
	switch {
	case f.o.KeepBodies:
		return bodiesPolicy
	case f.o.KeepRequests:
		return requestsPolicy
	}
	return nil
}

// Dir is the folder with state and logs.
func (f *Fleet) Dir() string { return f.dir }

// build finds or makes all programs.
func (f *Fleet) build(ctx context.Context) (err error) {
	tree, err := source.Find(ctx)
	if err != nil {
		return err
	}
	f.root = tree.Root
	if f.assets, err = devcluster.Assets(ctx); err != nil || f.o.Bare {
		return err
	}
	bin, err := Build(ctx, f.o.Say)
	if err != nil {
		return err
	}
	f.ours = Release{Root: f.root, Bin: bin}
	first := f.ours
	if f.o.Release != nil {
		first = *f.o.Release
	}
	f.installed, f.operated, f.hollow = first, first, first
	return nil
}

// Binary is the path of one of our binaries or of kubectl.
func (f *Fleet) Binary(name string) string {
	if name == "kubectl" {
		return filepath.Join(f.assets, name)
	}
	return filepath.Join(f.ours.Bin, name)
}

// builds reports whether the operator builds and signs images, for which it needs more rights.
func (o *Options) builds() bool {
	return slices.ContainsFunc(o.OperatorArgs, func(arg string) bool { return strings.HasPrefix(arg, "--signer-image=") })
}

func (f *Fleet) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", f.Cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, "fleet-admin"
	f.AdminConfig = config
	log.SetLogger(logr.Discard()) // controller-runtime complains otherwise; the fleet speaks for itself
	scheme := runtimeScheme()
	f.Admin, err = client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the control plane: %w", err)
	}
	return nil
}

// StartOperator starts the operator under its ServiceAccount. Its log is operator.log.
func (f *Fleet) StartOperator(ctx context.Context) (err error) {
	if f.operator == "" {
		if f.operator, err = f.kubeconfigFor(ctx, "drover-operator"); err != nil {
			return err
		}
	}
	args := append([]string{
		"--kubeconfig=" + f.operator, "--namespace=" + Namespace, "--agent-image=registry.invalid/drover/drover-agent:dev",
		"--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, f.o.OperatorArgs...)
	if f.o.Ooto {
		args = append(args, "--controllers=*,ooto")
	}
	if f.o.Spoke {
		args = append(args, "--mode=spoke")
	}
	binary, log := f.operated.binary("drover-operator"), filepath.Join(f.dir, "operator.log")
	f.Operator, err = StartProcess(binary, log, args, "OPERATOR_NAMESPACE="+Namespace)
	return err
}

// StartHollow starts the hollow nodes and waits until they are registered. Their log is hollow.log.
func (f *Fleet) StartHollow(ctx context.Context) error {
	kubeconfig, err := f.kubeconfigFor(ctx, "drover-hollow")
	if err != nil {
		return err
	}
	if f.debug, err = FreeAddress(); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--nodes=" + strconv.Itoa(f.o.Nodes), "--kernels=" + strings.Join(f.o.Kernels, ","),
		"--dir=" + filepath.Join(f.dir, "hollow"), "--debug-address=" + f.debug,
	}
	for k, v := range f.o.NodeLabels {
		args = append(args, "--labels="+k+"="+v)
	}
	if f.o.ImagePattern != "" {
		args = append(args, "--image-pattern="+f.o.ImagePattern)
	}
	for _, fault := range f.o.Faults {
		args = append(args, "--fault="+fault)
	}
	if f.o.DiskSize > 0 {
		args = append(args, fmt.Sprintf("--disk-size=%d", f.o.DiskSize))
	}
	if f.o.LeasePeriod > 0 {
		args = append(args, "--lease-period="+f.o.LeasePeriod.String(), "--node-status-interval="+(statusBeats*f.o.LeasePeriod).String())
	}
	args = append(args, f.o.HollowArgs...)
	log := filepath.Join(f.dir, "hollow.log")
	f.o.Say("registering %d hollow nodes", f.o.Nodes)
	if f.Hollow, err = f.startHollow(log, args); err != nil {
		return err
	}
	return f.Hollow.WaitFor(ctx, "HOLLOW READY", registerPatience+time.Duration(f.o.Nodes)*registerNode)
}

// startHollow gives the process the mounts that it needs, or might have.
func (f *Fleet) startHollow(log string, args []string) (*Process, error) {
	binary := f.hollow.binary("drover-hollow")
	if f.o.InMemory {
		p, err := startProcess(ownMounts(), binary, log, append(args, "--in-memory"))
		if f.o.DiskSize > 0 || err == nil {
			return p, err
		}
		f.o.Say("the hollow nodes' disks are on this machine's: %v", err)
	}
	if f.o.DiskSize > 0 {
		return startProcess(ownMounts(), binary, log, args)
	}
	return startProcess(attributes(), binary, log, args)
}

// StopOperator ends the operator as a rolling update would, and waits.
func (f *Fleet) StopOperator() error {
	p := f.Operator
	f.Operator = nil
	return p.Stop()
}

// Stop ends everything that Start started, in order.
func (f *Fleet) Stop() error {
	err := errors.Join(f.Operator.Stop(), f.Hollow.Stop())
	if f.Cluster != nil {
		err = errors.Join(err, f.Cluster.Stop())
	}
	if f.temporary {
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	return err
}

// Kubectl runs kubectl as the administrator in the repository's root.
func (f *Fleet) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, f.Binary("kubectl"), append([]string{"--kubeconfig", f.Cluster.Kubeconfig}, args...)...)
	cmd.Dir = f.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// WaitOperator returns when the operator's controllers run.
func (f *Fleet) WaitOperator(ctx context.Context) error {
	return f.Operator.WaitFor(ctx, "Starting workers", time.Minute)
}
