// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	deviceconfig "github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	ptemplate "github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/node"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	operatorNamespace = "drover-system"
	// patience is how long one expectation may take on a busy machine.
	patience = 3 * time.Minute
	// brokenPatience is for what is broken on purpose.
	brokenPatience = 30 * time.Second
)

// suite is one run.
type suite struct {
	breaks  string
	begin   time.Time
	started bool // what is broken on purpose comes after the start
	proved  map[string]bool
	figures map[string]float64
	// extra is more for the result.
	extra map[string]any
	// packages are what group dkms did, by their names.
	packages map[string]*packageResult
	// signingKey and signingCert are for images that are built here, PEM.
	signingKey, signingCert []byte
	// patience is how long one expectation may take; 0 is the usual. PATIENCE=10m is for machines that do other things, too.
	patience time.Duration
	// notTested are items of group privileges that are only documented.
	notTested []string
	tooHigh   []error // figures above their bounds
	kernels   []string
	boots     []string

	cache    *artifacts.Cache
	images   *artifacts.Images
	building *sync.Mutex // of the lanes together: they build the same files
	assets   string
	dir      string
	cluster  *devcluster.Cluster
	registry *registry.Registry
	config   *rest.Config
	client   client.Client
	core     kubernetes.Interface
	nodes    map[artifacts.Series]*node.Node
	builder  *node.Native
	// guestFiles are put into nodes that start.
	guestFiles map[string]artifacts.File
	// loadtime is a program of group agent.
	loadtime string
	// agentPod is what the agent is deployed with, agentName its newest pod.
	agentPod  *corev1.PodSpec
	agentName string
	// samples are those of group operators.
	samples samples
	// spokes are those of group hub, by name. spokePorts are those of their API servers, which the hub's pod reaches.
	spokes     map[string]*spoke
	spokePorts map[string]int
}

// say prints one line of progress.
func (s *suite) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] "+format+"\n", append([]any{time.Since(s.begin).Seconds()}, args...)...)
}

func newSuite() *suite {
	return &suite{breaks: os.Getenv("BREAK"), proved: map[string]bool{}, figures: map[string]float64{}, extra: map[string]any{}, building: &sync.Mutex{}}
}

// prepare makes everything that is made once and kept: binaries, kernels, images of the root file system.
func (s *suite) prepare(ctx context.Context) (err error) {
	s.begin = time.Now()
	s.say("preparing binaries, kernels and the root file system (the first time takes about 12 minutes)")
	if text := os.Getenv("PATIENCE"); text != "" {
		if s.patience, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("PATIENCE: %w", err)
		}
	}
	if s.cache, err = artifacts.Open(""); err != nil {
		return err
	}
	// A package may need any module of the distribution's.
	s.cache.AllModules = group() == "dkms"
	if s.images, err = s.cache.Images(ctx); err != nil {
		return err
	}
	s.assets, err = devcluster.Assets(ctx)
	return err
}

func nodeName(series artifacts.Series) string { return "vm-" + string(series) }

func (s *suite) start(ctx context.Context) (err error) {
	names := []string{nodeName(artifacts.Linux61), nodeName(artifacts.Linux612), nodeName(needy), builderName}
	s.cluster, err = devcluster.Start(ctx, devcluster.Options{
		Dir: filepath.Join(s.dir, "cluster"), AdvertiseAddress: node.Gateway, ExtraSANs: []string{node.Gateway},
		NodeHostAliases: names, NodeTokens: names,
	})
	if err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if s.registry, err = registry.Start(); err != nil {
		return err
	}
	if err := s.registry.PushPause(ctx, s.images.Pause); err != nil {
		return err
	}
	for _, name := range []string{"drover-operator", "drover-agent", "sample-device-plugin", "sample-reader"} {
		if err := s.pushProgram(ctx, name); err != nil {
			return err
		}
	}
	if _, err := s.kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(s.cache.Repository(), "config/default")); err != nil {
		return err
	}
	if machines[group()].builder {
		if err := s.noAgentOnBuilder(ctx); err != nil {
			return err
		}
	}
	if err := s.startNode(ctx, artifacts.Linux61, 0); err != nil {
		return err
	}
	err = s.eventually(ctx, "operator and agent are ready", s.deployed)
	s.started = err == nil
	return err
}

// deployed checks that operator and agent run as config/default says. It reads the API, and not with kubectl in a loop, which would take a good part of
// a processor from the node that shall start them.
func (s *suite) deployed(ctx context.Context) error {
	operator, agent := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	if err := errors.Join(
		s.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "drover-operator"}, operator),
		s.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "drover-agent"}, agent),
	); err != nil {
		return err
	}
	if got := operator.Status; got.ObservedGeneration != operator.Generation || got.UpdatedReplicas == 0 || got.AvailableReplicas != got.Replicas {
		return fmt.Errorf("the operator's Deployment has %d of %d pods available", got.AvailableReplicas, got.Replicas)
	}
	if got := agent.Status; got.ObservedGeneration != agent.Generation || got.DesiredNumberScheduled == 0 ||
		got.UpdatedNumberScheduled != got.DesiredNumberScheduled || got.NumberAvailable != got.DesiredNumberScheduled {
		return fmt.Errorf("the agent's DaemonSet has %d of %d pods available", got.NumberAvailable, got.DesiredNumberScheduled)
	}
	return nil
}

func (s *suite) connect() (err error) {
	if s.config, err = s.cluster.RESTConfig(); err != nil {
		return err
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains otherwise
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		deviceconfig.AddToScheme(scheme), ptemplate.AddToScheme(scheme),
		hubv1beta1.AddToScheme(scheme), clusterv1.Install(scheme), clusterv1alpha1.Install(scheme), workv1.Install(scheme)); err != nil {
		return err
	}
	if s.client, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.core, err = kubernetes.NewForConfig(s.config)
	return err
}

func (s *suite) pushProgram(ctx context.Context, name string) error {
	s.building.Lock()
	defer s.building.Unlock()
	program, err := images.Find(name)
	if err != nil {
		return err
	}
	builder := images.Builder{Repository: s.cache.Repository(), Output: filepath.Join(s.cache.Repository(), "bin", "images"), Version: "dev"}
	if program.Kmod {
		kmod, err := s.cache.Entry(ctx, "image-kmod", []string{"1", "amd64"}, func(ctx context.Context, dir string) error {
			return images.FetchKmod(ctx, dir, "amd64")
		})
		if err != nil {
			return err
		}
		builder.Kmod = map[string]string{"amd64": kmod}
	}
	image, err := builder.Image(ctx, program, "amd64")
	if err != nil {
		return err
	}
	_, _, err = s.registry.Push(ctx, "drover/"+name+":dev", image)
	return err
}

func (s *suite) startNode(ctx context.Context, series artifacts.Series, index int) error {
	return s.startSeries(ctx, series, series, index)
}

// startSeries starts a node that is not called after its kernel.
func (s *suite) startSeries(ctx context.Context, series, kernel artifacts.Series, index int) error {
	ca, err := os.ReadFile(s.cluster.CA)
	if err != nil {
		return err
	}
	name := nodeName(series)
	n, err := node.Start(ctx, s.images, node.Config{
		Name: name, Index: index, Kernel: kernel, Dir: filepath.Join(s.dir, name),
		Server: s.cluster.Server, CA: ca, Token: s.cluster.NodeTokens[name], RegistryPort: s.registry.Port(),
		Labels: map[string]string{loadsLabel: "true"}, Files: s.guestFiles, MemMB: machines[group()].memMB, SMP: machines[group()].smp,
	})
	if err != nil {
		return err
	}
	if s.nodes == nil {
		s.nodes = map[artifacts.Series]*node.Node{}
	}
	s.nodes[series] = n
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.patience))
	defer cancel()
	found, err := n.WaitReady(ctx, s.core)
	if err != nil {
		return err
	}
	s.kernels = append(s.kernels, found.Status.NodeInfo.KernelVersion)
	s.boots = append(s.boots, found.Status.NodeInfo.BootID)
	return nil
}

// eventually repeats a check until it holds. What did not hold last is the error.
func (s *suite) eventually(ctx context.Context, what string, check func(context.Context) error) error {
	limit := cmp.Or(s.patience, patience)
	if s.breaks != "" && s.breaks != breakUnsigned && s.started {
		limit = brokenPatience
	}
	var last error
	begin := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err // an end of the time is not what was wrong
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s, within %s: %w", what, limit, errors.Join(last, err))
	}
	if os.Getenv("TRACE") != "" {
		s.say("      %s (%.1f s)", what, time.Since(begin).Seconds())
	}
	return nil
}

// sayProcessor prints the seconds that the first node's processor has worked, and for whom.
func (s *suite) sayProcessor(ctx context.Context) {
	const script = "cd /sys/fs/cgroup; for g in . system/containerd system/kubelet kubepods; do awk -v g=$g '$1 == \"usage_usec\" {printf \"%s %.1f s  \", g, $2 / 1e6}' $g/cpu.stat; done"
	used, err := s.console(ctx, script)
	s.say("      processor: %s", cmp.Or(used, fmt.Sprint(err)))
}

// throughout checks that something holds for a while, again and again.
func (s *suite) throughout(ctx context.Context, duration time.Duration, check func(context.Context) error) error {
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, duration, true, func(ctx context.Context) (bool, error) {
		return false, check(ctx)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

// kubectl runs kubectl as the administrator.
func (s *suite) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.assets, "kubectl"), append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

func (s *suite) namespace(ctx context.Context, name, podSecurity string) error {
	return s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": podSecurity},
	}})
}

// explain collects what somebody needs who looks at a failed step.
func (s *suite) explain() error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var facts []error
	questions := [][]string{
		{"get", "nodes,modules,nmc,pods,daemonsets", "-A", "-o", "wide"},
		{"get", "modules", "-A", "-o", "yaml"},
		{"get", "moduleimages,jobs", "-A", "-o", "wide"},
		{"get", "nmc", "-o", "yaml"},
		{"-n", operatorNamespace, "logs", "deployment/drover-operator", "--tail=40"},
		{"-n", operatorNamespace, "logs", "-l", "app.kubernetes.io/name=drover-boot", "--tail=40"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	}
	for _, pod := range s.agents(ctx) {
		questions = append(questions, []string{"-n", operatorNamespace, "logs", pod, "--tail=40"})
	}
	switch group() {
	case "operators":
		questions = append(questions, operatorQuestions...)
	case "hub":
		questions = append(questions, hubQuestions...)
	}
	for _, args := range questions {
		output, err := s.kubectl(ctx, args...)
		facts = append(facts, fmt.Errorf("\n$ kubectl %s\n%s", strings.Join(args, " "), output))
		if err != nil {
			facts = append(facts, err)
		}
	}
	for _, n := range s.nodes {
		output, _, err := n.Run(ctx, "dmesg | tail -n 25; tail -n 10 /var/log/kubelet.log")
		facts = append(facts, fmt.Errorf("\n$ dmesg on %s\n%s", n.Name(), output), err)
	}
	return errors.Join(facts...)
}

// agents are the pods of virtual nodes' agents. The API server reaches no other kubelet for their logs.
func (s *suite) agents(ctx context.Context) []string {
	pods, err := s.core.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=drover-agent"})
	if err != nil {
		return nil // the first questions have the same answer
	}
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != builderName {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names
}

func (s *suite) stop() error {
	var errs []error
	if s.builder != nil {
		errs = append(errs, s.builder.Stop())
	}
	for _, n := range s.nodes {
		errs = append(errs, n.Stop())
	}
	for _, one := range s.spokes {
		errs = append(errs, one.stop())
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Down())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if os.Getenv("KEEP") == "" && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
