// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/internal/testkit/source"
)

const (
	// atOnce is how many clusters answer at a time.
	atOnce = 32
	// hubName is the operator's on a hub.
	hubName = "drover-hub"
)

// kernels are what the clusters run by turns.
var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// bench is a hub and its clusters.
type bench struct {
	*fleet.Fleet
	client   client.Client
	binary   string
	clusters int
	answered atomic.Int64
}

// measure starts a hub, has all clusters get a Module and answer, and reads what it cost.
func measure(ctx context.Context, clusters int, timeout time.Duration, say func(string, ...any)) (m measured, err error) {
	m.Clusters = clusters
	b := &bench{clusters: clusters}
	if b.Fleet, err = fleet.Start(ctx, fleet.Options{Bare: true}); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.install(ctx); err != nil {
		return m, err
	}
	if err := b.join(ctx); err != nil {
		return m, err
	}
	say("%d clusters are there; the hub starts", clusters)
	process, err := b.startHub(ctx)
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	log, err := audit.Open(b.Cluster.AuditLog)
	if err != nil {
		return m, err
	}
	begin := time.Now()
	last, waited := b.deploy(ctx)
	m.Seconds = time.Since(begin).Seconds()
	m.ClustersApplied, m.ClustersReady = int(last.NumberApplied), int(last.NumberReady)
	var peak error
	m.RSSMiB, peak = process.PeakMiB()
	if err := errors.Join(waited, peak, process.Stop()); err != nil {
		return m, err
	}
	requests, err := log.Next()
	if err != nil {
		return m, err
	}
	m.WritesPerCluster = float64(len(audit.OurWrites(requests))) / float64(clusters)
	m.CPUSeconds = process.CPUSeconds()
	say("%d clusters are Ready after %.1f s: %.2f writes and %.3f s of a processor each, %.0f MiB", m.ClustersReady, m.Seconds,
		m.WritesPerCluster,
		m.CPUSeconds/float64(clusters), m.RSSMiB)
	return m, nil
}

// install applies what a hub needs, but for its Deployment.
func (b *bench) install(ctx context.Context) error {
	tree, err := source.Find(ctx)
	if err != nil {
		return err
	}
	b.binary = filepath.Join(tree.Bin, "drover-operator")
	if err := fleet.BuildProgram(ctx, tree.Root, "./cmd/drover-operator", b.binary); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api")
	cmd.Dir = tree.Root
	ocm, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the API of Open Cluster Management: %w", err)
	}
	files := []string{
		"config/crd/bases/drover.dev_moduleimages.yaml", "config/hub/namespace.yaml",
		"config/hub/hub.kmm.sigs.x-k8s.io_managedclustermodules.yaml",
		"config/hub/hub_role.yaml", "config/hub/rbac.yaml",
		filepath.Join(strings.TrimSpace(string(ocm)), "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml"),
		filepath.Join(strings.TrimSpace(string(ocm)), "work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml"),
	}
	args := []string{"apply", "--server-side"}
	for _, file := range files {
		args = append(args, "-f", file)
	}
	if _, err := b.Kubectl(ctx, args...); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), hubv1beta1.AddToScheme(scheme), clusterv1.Install(scheme),
		workv1.Install(scheme)); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	b.client, err = client.New(b.AdminConfig, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// join makes all clusters, with what their nodes run.
func (b *bench) join(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range b.clusters {
		group.Go(func() error {
			name := fmt.Sprintf("cluster-%04d", i)
			c := &clusterv1.ManagedCluster{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": "hub"}},
				Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			}
			if err := errors.Join(b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}),
				b.client.Create(ctx, c)); err != nil {
				return err
			}
			c.Status.Conditions = []metav1.Condition{}
			c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: hub.KernelsClaim, Value: kernels[i%len(kernels)]}}
			return b.client.Status().Update(ctx, c)
		})
	}
	return group.Wait()
}

func (b *bench) startHub(ctx context.Context) (*fleet.Process, error) {
	config, err := b.ConfigFor(ctx, hubName)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(b.Dir(), hubName+".kubeconfig")
	if err := fleet.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	process, err := fleet.StartProcess(b.binary, filepath.Join(b.Dir(), "hub.log"), []string{
		"--mode=hub", "--kubeconfig=" + kubeconfig, "--namespace=" + fleet.Namespace, "--leader-elect=false", "--metrics-bind-address=0",
		"--health-probe-bind-address=0",
	})
	if err != nil {
		return nil, err
	}
	return process, process.WaitFor(ctx, "Starting workers", time.Minute)
}

// deploy asks for a Module on all clusters, has these answer, and waits for the last.
func (b *bench) deploy(ctx context.Context) (last hubv1beta1.ManagedClusterModuleStatus, err error) {
	agents, end := context.WithCancel(ctx)
	answering := make(chan error, 1)
	go func() { answering <- b.answer(agents) }()
	defer func() {
		end()
		err = errors.Join(err, <-answering)
	}()
	m := &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: hubv1beta1.ManagedClusterModuleSpec{
		SpokeNamespace: "drivers", Selector: map[string]string{"bench": "hub"},
		ModuleSpec: v1beta1.ModuleSpec{Selector: map[string]string{},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:$KERNEL_FULL_VERSION"}},
			}}},
	}}
	if err := b.client.Create(ctx, m); err != nil {
		return last, fmt.Errorf("create the ManagedClusterModule: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		now := &hubv1beta1.ManagedClusterModule{}
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(m), now); err != nil {
			return false, err
		}
		last = now.Status
		return int(last.NumberReady) == b.clusters, nil
	})
	if err != nil {
		return last, fmt.Errorf("wait until all clusters are Ready (%d answered): %w", b.answered.Load(), err)
	}
	return last, nil
}

// answer plays all work agents and the operators behind them: what arrives is applied, and Ready.
// An informer looks again where the API server ends its watch, as it does with one that cannot
// follow.
func (b *bench) answer(ctx context.Context) error {
	works, err := cache.New(b.AdminConfig, cache.Options{Scheme: b.client.Scheme()})
	if err != nil {
		return fmt.Errorf("watch ManifestWorks: %w", err)
	}
	informer, err := works.GetInformer(ctx, &workv1.ManifestWork{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ManifestWorks: %w", err)
	}
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	answered := map[string]int64{} // generations, by cluster: the event of an answer comes after it
	arrived := func(object any) {
		if work, ok := object.(*workv1.ManifestWork); ok && answered[work.Namespace] < work.Generation {
			answered[work.Namespace] = work.Generation
			group.Go(func() error { return b.ready(ctx, work.DeepCopy()) })
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: arrived,
		UpdateFunc: func(_, now any) { arrived(now) }}); err != nil {
		return fmt.Errorf("watch ManifestWorks: %w", err)
	}
	return errors.Join(works.Start(ctx), group.Wait())
}

func (b *bench) ready(ctx context.Context, work *workv1.ManifestWork) error {
	text := func(name, value string) workv1.FeedbackValue {
		return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &value}}
	}
	number := func(name string, value int64) workv1.FeedbackValue {
		return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: ptr.To(value)}}
	}
	applied := metav1.Condition{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: work.Generation,
		LastTransitionTime: metav1.Now(),
	}
	work.Status = workv1.ManifestWorkStatus{Conditions: []metav1.Condition{applied},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			Conditions: []metav1.Condition{applied}, StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				text("revision", hub.ModuleOf(work).Annotations[hub.RevisionAnnotation]), number("generation", 1), number("observedGeneration", 1),
				text("ready", "True"), text("reason", v1beta1.ReasonReady), number("desired", 3), number("available", 3),
			}},
		}}}}
	if err := b.client.Status().Update(ctx, work); err != nil && ctx.Err() == nil {
		return fmt.Errorf("answer for cluster %s: %w", work.Namespace, err)
	}
	b.answered.Add(1)
	return nil
}
