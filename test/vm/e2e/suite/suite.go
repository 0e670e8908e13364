// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package suite runs steps on virtual nodes with a control plane, a registry and Drover, and has
// what all steps need.
package suite

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
	"github.com/drover-project/drover/api/kmm/v1beta2"
	ptemplate "github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/node"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// OperatorNamespace is where Drover is installed.
	OperatorNamespace = "drover-system"
	// patience is how long one expectation may take on a busy machine.
	patience = 3 * time.Minute
	// brokenPatience is for what is broken on purpose.
	brokenPatience = 90 * time.Second
)

// Suite is one run.
type Suite struct {
	Breaks  string
	begin   time.Time
	started bool // what is broken on purpose comes after the start
	Proved  map[string]bool
	Figures map[string]float64
	// Counts are figures that the lanes add up.
	Counts map[string]int
	// Extra is more for the result.
	Extra map[string]any
	// Patience is how long one expectation may take; 0 is the usual. PATIENCE=10m is for machines that
	// do other things, too.
	Patience time.Duration
	// NotTested are items of group privileges that are only documented.
	NotTested []string
	TooHigh   []error // figures above their bounds
	kernels   []string
	Boots     []string

	Cache    *artifacts.Cache
	Images   *artifacts.Images
	building *sync.Mutex // of the lanes together: they build the same files
	assets   string
	Dir      string
	Cluster  *devcluster.Cluster
	Registry *registry.Registry
	Config   *rest.Config
	Client   client.Client
	Core     kubernetes.Interface
	Nodes    map[artifacts.Series]*node.Node
	Builder  *node.Native
	// GuestFiles are put into nodes that start.
	GuestFiles map[string]artifacts.File
	// KernelArgs are more arguments of the kernels of nodes that start.
	KernelArgs []string
	// NodeLabels are those of nodes that start, beside LoadsLabel.
	NodeLabels map[string]string
	// Stops end what else was started.
	Stops []func() error
	// questions are the group's own for whoever looks at a failed step, for kubectl.
	questions [][]string
}

// Say prints one line of progress.
func (s *Suite) Say(format string, args ...any) {
	fmt.Printf("[%6.1fs] "+format+"\n", append([]any{time.Since(s.begin).Seconds()}, args...)...)
}

func newSuite() *Suite {
	return &Suite{Breaks: os.Getenv("BREAK"), Proved: map[string]bool{}, Figures: map[string]float64{}, Counts: map[string]int{},
		Extra: map[string]any{}, building: &sync.Mutex{}}
}

// prepare makes everything that is made once and kept: binaries, kernels, images of the root file
// system.
func (s *Suite) prepare(ctx context.Context) (err error) {
	s.begin = time.Now()
	s.Say("preparing binaries, kernels and the root file system (the first time takes about 12 minutes)")
	if text := os.Getenv("PATIENCE"); text != "" {
		if s.Patience, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("PATIENCE: %w", err)
		}
	}
	if s.Cache, err = artifacts.Open(""); err != nil {
		return err
	}
	// A package may need any module of the distribution's.
	s.Cache.AllModules = Group() == "dkms"
	if s.Images, err = s.Cache.Images(ctx); err != nil {
		return err
	}
	s.assets, err = devcluster.Assets(ctx)
	return err
}

// Begin starts a control plane, and a registry with the nodes' sandbox image.
func (s *Suite) Begin(ctx context.Context) (err error) {
	names := []string{NodeName(artifacts.Linux61), NodeName(artifacts.Linux612), NodeName(Needy), BuilderName}
	s.Cluster, err = devcluster.Start(ctx, devcluster.Options{
		Dir: filepath.Join(s.Dir, "cluster"), AdvertiseAddress: node.Gateway, ExtraSANs: []string{node.Gateway},
		NodeHostAliases: names, NodeTokens: names,
	})
	if err != nil {
		return err
	}
	if err := s.Connect(); err != nil {
		return err
	}
	if s.Registry, err = registry.Start(); err != nil {
		return err
	}
	return s.Registry.PushPause(ctx, s.Images.Pause)
}

// Start starts a control plane, a registry and the first node, and installs Drover.
func (s *Suite) Start(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	return s.Deploy(ctx)
}

// Deploy installs Drover and starts the first node, where Begin has been.
func (s *Suite) Deploy(ctx context.Context) error {
	if err := s.Install(ctx); err != nil {
		return err
	}
	if err := s.StartNode(ctx, artifacts.Linux61, 0); err != nil {
		return err
	}
	err := s.Eventually(ctx, "operator and agent are ready", s.Deployed)
	s.started = err == nil
	return err
}

// Install pushes Drover's images and applies config/default.
func (s *Suite) Install(ctx context.Context) error {
	for _, name := range []string{"drover-operator", "drover-agent", "sample-device-plugin", "sample-reader"} {
		if err := s.PushProgram(ctx, name); err != nil {
			return err
		}
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(s.Cache.Repository(), "config/default")); err != nil {
		return err
	}
	if machines[Group()].builder {
		return s.NoAgentOnBuilder(ctx)
	}
	return nil
}

// Deployed checks that operator and agent run as config/default says. It reads the API, and not
// with kubectl in a loop, which would take a good part of a processor from the node that shall
// start them.
func (s *Suite) Deployed(ctx context.Context) error {
	operator, agent := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	if err := errors.Join(
		s.Client.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "drover-operator"}, operator),
		s.Client.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "drover-agent"}, agent),
	); err != nil {
		return err
	}
	if got := operator.Status; got.ObservedGeneration != operator.Generation || got.UpdatedReplicas == 0 ||
		got.AvailableReplicas != got.Replicas {
		return fmt.Errorf("the operator's Deployment has %d of %d pods available", got.AvailableReplicas, got.Replicas)
	}
	if got := agent.Status; got.ObservedGeneration != agent.Generation || got.DesiredNumberScheduled == 0 ||
		got.UpdatedNumberScheduled != got.DesiredNumberScheduled || got.NumberAvailable != got.DesiredNumberScheduled {
		return fmt.Errorf("the agent's DaemonSet has %d of %d pods available", got.NumberAvailable, got.DesiredNumberScheduled)
	}
	return nil
}

// Connect makes the clients of the cluster.
func (s *Suite) Connect() (err error) {
	if s.Config, err = s.Cluster.RESTConfig(); err != nil {
		return err
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains otherwise
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme), v1beta2.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), deviceconfig.AddToScheme(scheme), ptemplate.AddToScheme(scheme),
		hubv1beta1.AddToScheme(scheme), clusterv1.Install(scheme), clusterv1alpha1.Install(scheme), workv1.Install(scheme)); err != nil {
		return err
	}
	if s.Client, err = client.New(s.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.Core, err = kubernetes.NewForConfig(s.Config)
	return err
}

// sayProcessor prints the seconds that the first node's processor has worked, and for whom.
func (s *Suite) sayProcessor(ctx context.Context) {
	const script = "cd /sys/fs/cgroup; for g in . system/containerd system/kubelet kubepods; do awk -v g=$g '$1 == \"usage_usec\" {printf " +
		"\"%s %.1f s  \", g, $2 / 1e6}' $g/cpu.stat; done"
	used, err := s.Console(ctx, script)
	s.Say("      processor: %s", cmp.Or(used, fmt.Sprint(err)))
}

// Kubectl runs kubectl as the administrator.
func (s *Suite) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.assets, "kubectl"), append([]string{"--kubeconfig", s.Cluster.Kubeconfig}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// Namespace makes a namespace with a level of Pod Security.
func (s *Suite) Namespace(ctx context.Context, name, podSecurity string) error {
	return s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": podSecurity},
	}})
}

// explain collects what somebody needs who looks at a failed step.
func (s *Suite) explain() error {
	if s.Cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var facts []error
	questions := [][]string{
		{"get", "nodes,modules,nmc,pods,daemonsets", "-A", "-o", "wide"},
		{"get", "modules", "-A", "-o", "yaml"},
		{"get", "moduleimages,jobs", "-A", "-o", "wide"},
		{"get", "nmc", "-o", "yaml"},
		{"-n", OperatorNamespace, "logs", "deployment/drover-operator", "--tail=40"},
		{"-n", OperatorNamespace, "logs", "-l", "app.kubernetes.io/name=drover-boot", "--tail=40"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	}
	for _, pod := range s.agents(ctx) {
		questions = append(questions, []string{"-n", OperatorNamespace, "logs", pod, "--tail=40"})
	}
	questions = append(questions, s.questions...)
	for _, args := range questions {
		output, err := s.Kubectl(ctx, args...)
		facts = append(facts, fmt.Errorf("\n$ kubectl %s\n%s", strings.Join(args, " "), output))
		if err != nil {
			facts = append(facts, err)
		}
	}
	for _, n := range s.Nodes {
		output, _, err := n.Run(ctx, "dmesg | tail -n 25; dmesg | grep avc: | head -n 40; tail -n 10 /var/log/kubelet.log")
		facts = append(facts, fmt.Errorf("\n$ dmesg on %s\n%s", n.Name(), output), err)
	}
	return errors.Join(facts...)
}

// agents are the pods of virtual nodes' agents. The API server reaches no other kubelet for their
// logs.
func (s *Suite) agents(ctx context.Context) []string {
	pods, err := s.Core.CoreV1().Pods(OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=drover-agent"})
	if err != nil {
		return nil // the first questions have the same answer
	}
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != BuilderName {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names
}

func (s *Suite) stop() error {
	var errs []error
	if s.Builder != nil {
		errs = append(errs, s.Builder.Stop())
	}
	for _, n := range s.Nodes {
		errs = append(errs, n.Stop())
	}
	for _, stop := range s.Stops {
		errs = append(errs, stop())
	}
	if s.Registry != nil {
		errs = append(errs, s.Registry.Down())
	}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Stop())
	}
	if os.Getenv("KEEP") == "" && s.Dir != "" {
		errs = append(errs, os.RemoveAll(s.Dir))
	}
	return errors.Join(errs...)
}
