// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/kit"
)

// workers is what controller-runtime logs when a controller begins to work.
const workers = "Starting workers"

// Operator is an operator under test.
type Operator struct {
	c      *Cluster
	o      OperatorOptions
	config *rest.Config

	// process or cancel and done are set while it runs.
	process *fleet.Process
	cancel  context.CancelFunc
	done    chan error
}

// Operator returns one of the operators by its name.
func (c *Cluster) Operator(t testing.TB, name string) *Operator {
	t.Helper()
	operator := c.operators[name]
	if operator == nil {
		t.Fatalf("kittest: Options.Operators has no %q", name)
	}
	return operator
}

// Namespace is where the operator's ServiceAccount is.
func (o *Operator) Namespace() string { return o.o.Name + "-system" }

// Config is a connection with the operator's identity, and so with exactly its rights.
func (o *Operator) Config() *rest.Config { return rest.CopyConfig(o.config) }

// Client has the operator's identity and rights.
func (o *Operator) Client(t testing.TB) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(o.Config(), client.Options{Scheme: o.c.scheme})
	if err != nil {
		t.Fatalf("connect as %s: %v", o.o.Name, err)
	}
	return c
}

// Stop ends the operator as a rolling update does.
func (o *Operator) Stop(t testing.TB) {
	t.Helper()
	if err := o.stop(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the operator's process without a warning, as a node failure does.
func (o *Operator) Kill(t testing.TB) {
	t.Helper()
	if o.process == nil {
		t.Fatalf("kittest: operator %s is no process that runs", o.o.Name)
	}
	if err := o.process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.process = nil
}

// Start starts it after Stop or Kill, and returns when its controllers work.
func (o *Operator) Start(t testing.TB) {
	t.Helper()
	if err := o.start(context.WithoutCancel(t.Context())); err != nil { // cleanups start operators, too
		t.Fatal(err)
	}
}

// Log is what the operator has logged so far.
func (o *Operator) Log(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(o.log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("read the log of %s: %v", o.o.Name, err)
	}
	return string(content)
}

func (o *Operator) log() string { return filepath.Join(o.c.Dir(), o.o.Name+".log") }

func (c *Cluster) startOperators(ctx context.Context) error {
	for _, options := range c.o.Operators {
		operator := &Operator{c: c, o: options}
		if err := operator.enrol(ctx); err != nil {
			return fmt.Errorf("make the identity of %s: %w", options.Name, err)
		}
		c.operators[options.Name] = operator
		if err := operator.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// enrol gives the operator its identity and its rights.
func (o *Operator) enrol(ctx context.Context) (err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace()}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace(), Name: o.o.Name}}
	for _, object := range []client.Object{namespace, account} {
		if err := client.IgnoreAlreadyExists(o.c.Client.Create(ctx, object)); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	for _, file := range o.o.Roles {
		if err := o.grant(ctx, file); err != nil {
			return err
		}
	}
	if o.config, err = o.c.fleet.AccountConfig(ctx, o.Namespace(), o.o.Name); err != nil {
		return err
	}
	o.config.UserAgent = o.o.Name + "/kittest"
	return nil
}

func (o *Operator) start(ctx context.Context) error {
	switch {
	case o.process != nil || o.cancel != nil:
		return fmt.Errorf("operator %s runs already", o.o.Name)
	case o.o.Package != "":
		return o.startProcess(ctx)
	case o.o.Program != nil:
		return o.startProgram(ctx)
	}
	return nil
}

func (o *Operator) startProcess(ctx context.Context) error {
	binary, err := o.build(ctx)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(o.c.Dir(), o.o.Name+".kubeconfig")
	if err := fleet.WriteKubeconfig(kubeconfig, o.config); err != nil {
		return err
	}
	args := o.o.Args
	if args == nil {
		args = quietArgs
	}
	env := append([]string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + o.Namespace()}, o.o.Env...)
	o.process, err = fleet.StartProcess(binary, o.log(), args, env...)
	if err != nil {
		return err
	}
	return o.process.WaitFor(ctx, workers, o.c.o.Patience)
}

// built are the programs of this test binary by package, each in the folder of the cluster that
// needed it first.
var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// build returns the path of the operator's program.
func (o *Operator) build(ctx context.Context) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.paths[o.o.Package]; path != "" {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", o.o.Name, err)
	}
	path := filepath.Join(o.c.Dir(), o.o.Name)
	if err := fleet.BuildProgram(ctx, dir, o.o.Package, path); err != nil {
		return "", err
	}
	built.paths[o.o.Package] = path
	return path, nil
}

// startProgram runs the operator in this process. Its log is a file, as a process's is.
func (o *Operator) startProgram(ctx context.Context) error {
	log, err := os.OpenFile(o.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", o.o.Name, err)
	}
	program, managers := *o.o.Program, make(chan ctrl.Manager, 1)
	program.Setup = func(manager ctrl.Manager) error {
		managers <- manager
		return o.o.Program.Setup(manager)
	}
	options := &kit.Options{MetricsAddress: "0", ProbeAddress: "0", Log: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.cancel, o.done = cancel, make(chan error, 1)
	go func() { o.done <- errors.Join(program.Run(running, o.Config(), options), log.Close()) }()
	patience := time.After(o.c.o.Patience)
	var elected <-chan struct{}
	for {
		select {
		case manager := <-managers:
			elected = manager.Elected() // without leader election: when the controllers have been started
		case <-elected:
			return nil
		case err := <-o.done:
			o.done <- err
			return errors.Join(fmt.Errorf("operator %s ended", o.o.Name), o.stop())
		case <-patience:
			return errors.Join(fmt.Errorf("operator %s did not begin to work within %s", o.o.Name, o.c.o.Patience), o.stop())
		}
	}
}

// stop ends what runs, if anything does.
func (o *Operator) stop() error {
	process, cancel := o.process, o.cancel
	o.process, o.cancel = nil, nil
	if cancel != nil {
		cancel()
		if err := <-o.done; err != nil {
			return fmt.Errorf("operator %s: %w", o.o.Name, err)
		}
	}
	return process.Stop()
}
