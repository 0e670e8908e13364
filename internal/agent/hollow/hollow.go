// SPDX-License-Identifier: Apache-2.0

// Package hollow runs many nodes in one process: it registers Node objects and keeps them alive,
// runs the real agent of each over a fake kernel, and plays the kubelet for carrier pods with the
// real export. What the fake kernels hold is served on a debug address, as a source of truth that
// owes nothing to our own status.
package hollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/hollow/upset"
)

// registrations is how many nodes are registered at a time.
const registrations = 32

// Options say what to run.
type Options struct {
	// Nodes is how many nodes there are, called Prefix0, Prefix1, ….
	Nodes  int
	Prefix string
	// Kernels are spread evenly over the nodes.
	Kernels []string
	// OSImages are what the nodes say they run, spread as Kernels are; none, or an empty one, is
	// "Hollow Linux".
	OSImages []string
	// Labels are put on every node, beside the usual ones.
	Labels map[string]string
	// ImagePattern is a regular expression: a pull of an image that does not match fails.
	ImagePattern string
	// ModuleParams are the parameters that modules from images have.
	ModuleParams []string
	// Dir holds the nodes' disks; empty for a temporary directory that is removed at the end.
	Dir string
	// DiskSize gives each agent's files a disk of their own of so many bytes, which can be full; 0 has
	// them in Dir. It takes a mount namespace of the process's own.
	DiskSize int64
	// InMemory keeps Dir in memory, of which it may take half, where the system has mounts. It takes a
	// mount namespace of the process's own.
	InMemory bool
	// KeepKernels has the nodes run on while no process plays them, as a node does whose agent is
	// replaced: what their kernels hold is kept in Dir when Run ends, and the next Run goes on with
	// it. Otherwise, each Run boots them.
	KeepKernels bool
	// Faults are "agent-off", "load-<errno>" and "unload-<errno>", each for all nodes or, with
	// "@<node>", for one.
	Faults []string
	// CallDeadline is how long a kernel call may take until it is left behind; 0 is the fake kernel's
	// own.
	CallDeadline time.Duration
	// StatusInterval is how often a node's status is written although nothing changed; 0 is never.
	StatusInterval time.Duration
	// LeasePeriod is how often a node renews its lease, in whole seconds; a lease lasts for four
	// periods. 0 is the kubelet's 10 s. What watches nodes must be told of a longer one.
	LeasePeriod time.Duration
	// DebugAddress is where the truth is served; empty for nowhere.
	DebugAddress string
	// Clock is the real one unless set.
	Clock clock.WithTicker
}

// AddFlags binds the options.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	flags.StringVar(&o.Prefix, "prefix", "hollow-", "beginning of the nodes' names")
	flags.StringSliceVar(&o.Kernels, "kernels", []string{"6.1.0-51-amd64"}, "kernel versions, spread evenly over the nodes")
	flags.StringArrayVar(&o.OSImages, "os-image", nil, "status.nodeInfo.osImage of the nodes; several, given one by one, are spread evenly")
	flags.StringToStringVar(&o.Labels, "labels", nil, "more labels of the nodes, key=value")
	flags.StringVar(&o.ImagePattern, "image-pattern", "", "regular expression; images that do not match do not exist")
	flags.StringSliceVar(&o.ModuleParams, "module-params", nil, "parameters that the modules in images have")
	flags.StringVar(&o.Dir, "dir", "", "directory of the nodes' disks (default: a temporary one)")
	flags.Int64Var(&o.DiskSize, "disk-size", 0, "bytes of a disk of its own for each agent's files, which needs a mount namespace; 0 is none")
	flags.BoolVar(&o.InMemory, "in-memory", false, "keep the nodes' disks in memory, which needs a mount namespace, or else on disk")
	flags.BoolVar(&o.KeepKernels, "keep-kernels", false, "let the nodes run on until the next process with this --dir, instead of a reboot")
	flags.StringSliceVar(&o.Faults, "fault", nil, "agent-off, load-<errno>, unload-<errno>; @<node> at the end limits it to that node")
	flags.DurationVar(&o.CallDeadline, "kernel-call-deadline", 0, "how long one load or unload may take until it is left behind "+
		"(default: a minute)")
	flags.DurationVar(&o.StatusInterval, "node-status-interval", 5*time.Minute, "how often a node's unchanged status is written; 0 is never")
	flags.DurationVar(&o.LeasePeriod, "lease-period", leasePeriod, "how often a node renews its lease, which lasts for four periods")
	flags.StringVar(&o.DebugAddress, "debug-address", "", "loopback address that serves what the kernels hold, as JSON")
}

func (o *Options) validate() (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(o.ImagePattern)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--image-pattern: %w", err)
	case o.Nodes < 1:
		return nil, fmt.Errorf("--nodes: %d nodes", o.Nodes)
	case o.LeasePeriod < 0 || o.LeasePeriod%time.Second != 0:
		return nil, fmt.Errorf("--lease-period: %s is not a number of whole seconds", o.LeasePeriod)
	case len(o.Kernels) == 0 || slices.Contains(o.Kernels, ""):
		return nil, errors.New("--kernels: no kernel version")
	}
	return pattern, nil
}

// fleet is everything that runs.
type fleet struct {
	o      Options
	api    *api
	nodes  []*node
	byName map[string]*node
	// carriers is the kubelets' part of the work, shared by all nodes.
	carriers *carriers
}

// Run works until ctx ends. Progress goes to out, one plain line each; "HOLLOW READY nodes=N" when
// all are registered.
func Run(ctx context.Context, config *rest.Config, o Options, out io.Writer) (err error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	pattern, err := o.validate()
	if err != nil {
		return err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "drover-hollow-"); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	if o.InMemory {
		disk, failed := upset.Mount(o.Dir, upset.HalfOfMemory)
		if failed != nil {
			klog.FromContext(ctx).Error(failed, "The nodes' disks are on this machine's", "dir", o.Dir)
		} else {
			defer func() { err = errors.Join(err, disk.Unmount()) }()
		}
	}
	f := &fleet{o: o, byName: map[string]*node{}}
	if f.api, err = newAPI(config); err != nil {
		return err
	}
	if err := f.makeNodes(config); err != nil {
		return err
	}
	pulled := newImages(filepath.Join(o.Dir, "images"), pattern, o.ModuleParams)
	defer func() { err = errors.Join(err, pulled.remove()) }()
	defer func() { err = errors.Join(err, f.unmount()) }()
	f.carriers = newCarriers(f.api, f.byName, pulled, o.Clock)
	return f.run(ctx, out)
}

func (f *fleet) makeNodes(config *rest.Config) error {
	for i := range f.o.Nodes {
		n, err := newNode(f.api, config, f.o, i)
		if err != nil {
			return err
		}
		f.nodes, f.byName[n.name] = append(f.nodes, n), n
	}
	for _, fault := range f.o.Faults {
		if err := f.apply(fault); err != nil {
			return err
		}
	}
	return nil
}

// unmount ends the nodes' disks.
func (f *fleet) unmount() (err error) {
	for _, n := range f.nodes {
		if n.disk != nil {
			err = errors.Join(err, n.disk.Unmount())
		}
	}
	return err
}

func (f *fleet) run(ctx context.Context, out io.Writer) (err error) {
	all, ctx := errgroup.WithContext(ctx)
	defer func() {
		for _, n := range f.nodes {
			if n.stop(); f.o.KeepKernels {
				err = errors.Join(err, n.keep())
			}
		}
	}()
	if f.o.DebugAddress != "" {
		all.Go(func() error { return f.serve(ctx) })
	}
	all.Go(func() error {
		if err := f.start(ctx, out); err != nil {
			return err
		}
		all.Go(func() error { return f.carriers.run(ctx) })
		f.beat(ctx)
		return nil
	})
	if err := all.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// start registers all nodes and starts their agents.
func (f *fleet) start(ctx context.Context, out io.Writer) error {
	if err := errors.Join(f.api.learnRelease(ctx), f.api.ensureAccount(ctx)); err != nil {
		return err
	}
	var done atomic.Int64
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	go wait.UntilWithContext(reporting, func(context.Context) {
		fmt.Fprintf(out, "registered %d of %d hollow nodes\n", done.Load(), len(f.nodes))
	}, time.Second)
	some, starting := errgroup.WithContext(ctx)
	some.SetLimit(registrations)
	for _, n := range f.nodes {
		some.Go(func() error {
			if err := n.register(starting); err != nil {
				return err
			}
			done.Add(1)
			return n.startAgent(ctx)
		})
	}
	if err := some.Wait(); err != nil {
		return err
	}
	stop()
	klog.FromContext(ctx).Info("Hollow nodes are ready", "nodes", len(f.nodes))
	fmt.Fprintf(out, "HOLLOW READY nodes=%d\n", len(f.nodes))
	return nil
}
