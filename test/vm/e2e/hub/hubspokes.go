// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/node"
)

const (
	// siteLabel names a spoke on its ManagedCluster and on its Secret.
	siteLabel = "e2e.drover.dev/site"
	// spokeNodes is how many hollow nodes a spoke has.
	spokeNodes = 2
)

// spokeKernels are what the nodes of each spoke run.
var spokeKernels = map[string]artifacts.Series{"north": artifacts.Linux61, "south": artifacts.Linux612}

// spoke is a cluster that a hub sends Modules to.
type spoke struct {
	name  string
	fleet *fleet.Fleet
	// admin knows the kinds of Open Cluster Management, too.
	admin client.Client
	// agent is its work agent; nil while the cluster is cut off.
	agent *fleet.Process
	// register ends what plays the registration agent.
	register func() error
}

// startSpokes starts all spokes, each with an operator and hollow nodes, and joins them to the hub
// by both transports.
func (s *steps) startSpokes(ctx context.Context) error {
	s.Say("      building Open Cluster Management's work agent (the first time takes minutes)")
	agent, err := s.workAgent(ctx)
	if err != nil {
		return err
	}
	s.spokes = map[string]*spoke{}
	var mu sync.Mutex
	var starting sync.WaitGroup
	var errs []error
	for name := range spokeKernels {
		starting.Go(func() {
			spoke, err := s.startSpoke(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if spoke != nil {
				s.spokes[name] = spoke
				s.Stops = append(s.Stops, spoke.stop)
			}
			errs = append(errs, err)
		})
	}
	starting.Wait()
	for _, spoke := range s.spokes {
		errs = append(errs, s.join(ctx, spoke), s.startAgent(ctx, spoke, agent), s.joinDirectly(ctx, spoke))
	}
	return errors.Join(errs...)
}

// workAgent builds Open Cluster Management's own.
func (s *steps) workAgent(ctx context.Context) (string, error) {
	binary := filepath.Join(s.Cache.Repository(), "bin", "work-agent")
	return binary, fleet.BuildProgram(ctx, filepath.Join(s.Cache.Repository(), "tools", "ocm"), ".", binary)
}

func (s *steps) startSpoke(ctx context.Context, name string) (_ *spoke, err error) {
	release := s.Images.Kernels[spokeKernels[name]].Release
	f, err := fleet.Start(ctx, fleet.Options{Nodes: spokeNodes, Kernels: []string{release}, Spoke: true, Dir: filepath.Join(s.Dir, name),
		APIServerPort: s.SpokePorts[name], ExtraSANs: []string{node.Gateway}})
	if err != nil {
		return nil, fmt.Errorf("spoke %s: %w", name, err)
	}
	one := &spoke{name: name, fleet: f}
	if one.admin, err = client.New(f.AdminConfig, client.Options{Scheme: s.Client.Scheme()}); err != nil {
		return one, err
	}
	files, err := s.ocmDefinitions(ctx, "cluster/v1alpha1/0000_02_clusters.open-cluster-management.io_clusterclaims.crd.yaml",
		"work/v1/0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml")
	if err != nil {
		return one, err
	}
	if _, err := f.Kubectl(ctx, append([]string{"apply", "--server-side"}, files...)...); err != nil {
		return one, err
	}
	return one, one.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spokeSpace}})
}

// join makes a spoke a ManagedCluster of the hub, and plays its registration agent: claims are
// brought to the hub.
func (s *steps) join(ctx context.Context, one *spoke) error {
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: one.name, Labels: map[string]string{byLabel: "manifestwork", siteLabel: one.name}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60},
	}
	if err := errors.Join(
		s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one.name}}), s.Client.Create(ctx, cluster),
	); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var last error // an agent tries again
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			if err := s.bringClaims(ctx, one); ctx.Err() == nil {
				last = err
			}
			return false, nil
		})
	}()
	one.register = func() error {
		cancel()
		<-ended
		if last != nil {
			return fmt.Errorf("bring the claims of %s: %w", one.name, last)
		}
		return nil
	}
	return nil
}

// bringClaims copies the claims of a spoke into the status of its ManagedCluster.
func (s *steps) bringClaims(ctx context.Context, one *spoke) error {
	var claims clusterv1alpha1.ClusterClaimList
	cluster := &clusterv1.ManagedCluster{}
	if err := errors.Join(one.admin.List(ctx, &claims), s.Client.Get(ctx, client.ObjectKey{Name: one.name}, cluster)); err != nil {
		return err
	}
	var said []clusterv1.ManagedClusterClaim
	for i := range claims.Items {
		said = append(said, clusterv1.ManagedClusterClaim{Name: claims.Items[i].Name, Value: claims.Items[i].Spec.Value})
	}
	if equality.Semantic.DeepEqual(said, cluster.Status.ClusterClaims) {
		return nil
	}
	cluster.Status.ClusterClaims = said
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable",
		LastTransitionTime: metav1.Now(),
	}}
	return s.Client.Status().Update(ctx, cluster)
}

// agentRules are what the work agent of a cluster may do in its namespace on the hub.
var agentRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks"},
		Verbs: []string{"get", "list", "watch", "update"}},
	{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks/status"}, Verbs: []string{"update", "patch"}},
	{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks/finalizers"}, Verbs: []string{"update"}},
	{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks"}, Verbs: []string{"patch"}},
	{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
}

const (
	// workNamespace and workAccount are the work agent's on its cluster.
	workNamespace = "open-cluster-management-agent"
	workAccount   = "klusterlet-work-sa"
)

// giveRights gives the work agent on its cluster what Open Cluster Management gives it: the role
// admin, which knows no custom resources, its own kinds, and what others add by a label.
func (one *spoke) giveRights(ctx context.Context) error {
	work, all := []string{"work.open-cluster-management.io"}, []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: workNamespace, Name: workAccount}}
	binding := func(role string) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "work-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: workNamespace, Name: workAccount}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "work-agent"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: work, Resources: []string{"appliedmanifestworks"}, Verbs: all},
			{APIGroups: work, Resources: []string{"appliedmanifestworks/status", "appliedmanifestworks/finalizers"},
				Verbs: []string{"update", "patch"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "work-added"}, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"open-cluster-management.io/aggregate-to-work": "true"}}},
		}},
		binding("work-agent"), binding("work-added"), binding("admin"),
	} {
		if err := client.IgnoreAlreadyExists(one.admin.Create(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}

// startAgent starts the work agent of a spoke, which has no rights on the hub but in its own
// namespace.
func (s *steps) startAgent(ctx context.Context, one *spoke, binary string) error {
	const name = "work-agent"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: one.name, Name: name}}
	meta := metav1.ObjectMeta{Namespace: one.name, Name: name}
	for _, o := range []client.Object{
		account, &rbacv1.Role{ObjectMeta: meta, Rules: agentRules},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: one.name, Name: name}},
		},
	} {
		if err := client.IgnoreAlreadyExists(s.Client.Create(ctx, o)); err != nil {
			return err
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := s.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return err
	}
	hub := rest.AnonymousClientConfig(s.Config)
	hub.BearerToken = token.Status.Token
	file := filepath.Join(one.fleet.Dir(), "hub.kubeconfig")
	if err := fleet.WriteKubeconfig(file, hub); err != nil {
		return err
	}
	if err := one.giveRights(ctx); err != nil {
		return err
	}
	here, err := one.fleet.AccountConfig(ctx, workNamespace, workAccount)
	if err != nil {
		return err
	}
	itself := filepath.Join(one.fleet.Dir(), "work-agent.kubeconfig")
	if err := fleet.WriteKubeconfig(itself, here); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	one.agent, err = fleet.StartProcess(binary, filepath.Join(one.fleet.Dir(), "work-agent.log"), []string{
		"--spoke-cluster-name=" + one.name, "--kubeconfig=" + itself, "--workload-source-config=" + file,
		"--disable-leader-election", "--status-sync-interval=2s", "--namespace=" + suite.OperatorNamespace,
		fmt.Sprintf("--listen=127.0.0.1:%d", port),
	})
	return err
}

// joinDirectly gives the hub a kubeconfig for a spoke, with the rights that config/spoke has for
// it.
func (s *steps) joinDirectly(ctx context.Context, one *spoke) error {
	config, err := one.fleet.AccountConfig(ctx, suite.OperatorNamespace, "drover-hub-access")
	if err != nil {
		return err
	}
	config.Host = fmt.Sprintf("https://%s:%d", node.Gateway, s.SpokePorts[one.name]) // as a pod of the hub sees it
	content, err := fleet.Kubeconfig(config)
	if err != nil {
		return err
	}
	return s.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: suite.OperatorNamespace, Name: "metal-" + one.name,
			Labels: map[string]string{direct.ClusterLabel: "true", byLabel: "direct", siteLabel: one.name},
		},
		Data: map[string][]byte{direct.KubeconfigKey: content},
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, errors.Join(err, l.Close())
	}
	number, err := strconv.Atoi(port)
	return number, errors.Join(err, l.Close())
}

// loadedOn checks which nodes of a spoke hold the sample, by their kernels.
func (one *spoke) loadedOn(ctx context.Context, nodes int) error {
	truth, err := one.fleet.Truth(ctx)
	if err != nil {
		return err
	}
	have := 0
	for _, n := range truth {
		if n.Has(loads.Sample) {
			have++
		}
	}
	if have != nodes {
		return fmt.Errorf("%d nodes of %s have %s instead of %d", have, one.name, loads.Sample, nodes)
	}
	return nil
}

// does has something happen to all nodes of a spoke, such as a module's removal by hand.
func (one *spoke) does(ctx context.Context, verb string, args ...string) error {
	form := url.Values{}
	for i := 0; i+1 < len(args); i += 2 {
		form.Set(args[i], args[i+1])
	}
	for i := range spokeNodes {
		form.Set("node", fmt.Sprintf("hollow-%d", i))
		if err := one.fleet.Debug(ctx, "/"+verb+"?"+form.Encode()); err != nil {
			return err
		}
	}
	return nil
}

func (one *spoke) stop() error {
	var errs []error
	if one.register != nil {
		errs = append(errs, one.register())
	}
	return errors.Join(append(errs, one.agent.Stop(), one.fleet.Stop())...)
}
