// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hub

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/node"
)

// quiet is how long a hub with nothing to do is watched.
const quiet = 20 * time.Second

// Questions are for whoever looks at a failed step.
var Questions = [][]string{
	{"get", "managedclustermodules,managedclusters,manifestworks", "-A", "-o", "yaml"},
	{"-n", suite.OperatorNamespace, "logs", "deployment/" + hubName, "--tail=60"},
}

// hubGrows installs Open Cluster Management beside a hub that runs, and joins the spokes.
func (s *steps) hubGrows(ctx context.Context) error {
	if err := s.installOCM(ctx); err != nil {
		return err
	}
	err := s.startSpokes(ctx)
	s.Extra["spokes"] = len(s.spokes)
	return err
}

// works waits until both spokes have what the hub made.
func (s *steps) works(ctx context.Context) error {
	if err := s.Within(ctx, builds.BuildPatience, "both clusters are Ready", func(ctx context.Context) error {
		return s.hubSays(ctx, "nic-manifestwork", metav1.ConditionTrue, v1beta1.ReasonReady, "2 clusters")
	}); err != nil {
		return err
	}
	if err := errors.Join(s.loadedEverywhere(ctx), s.madeOnHub(ctx, len(spokeKernels)), s.vermagics(ctx, "manifestwork"),
		s.noSecrets(ctx)); err != nil {
		return err
	}
	if err := s.commandSays(ctx, "status", "nic-manifestwork", "Ready on 2 of 2 clusters", "north ", "south ", "2/2"); err != nil {
		return err
	}
	s.Extra["modulesReady"] = len(s.spokes)
	s.Extra["transports"] = []string{"manifestwork"}
	return nil
}

// commandSays runs a subcommand of drover on the hub, which says what is wrong by its exit code as
// well.
func (s *steps) commandSays(ctx context.Context, command, name string, words ...string) error {
	binary := filepath.Join(s.Cache.Repository(), "bin", "drover")
	if err := fleet.BuildProgram(ctx, s.Cache.Repository(), "./cmd/drover", binary); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, binary, command, name, "--kubeconfig", s.Cluster.Kubeconfig).CombinedOutput()
	for _, word := range words {
		if !strings.Contains(string(output), word) {
			return errors.Join(fmt.Errorf("drover %s %s does not say %q, but:\n%s", command, name, word, output), err)
		}
	}
	return nil
}

func (s *steps) loadedEverywhere(ctx context.Context) error {
	var errs []error
	for _, one := range s.spokes {
		errs = append(errs, one.loadedOn(ctx, spokeNodes))
	}
	return errors.Join(errs...)
}

// noSecrets: nothing of builds and signatures leaves the hub.
func (s *steps) noSecrets(ctx context.Context) error {
	var works workv1.ManifestWorkList
	if err := s.Client.List(ctx, &works); err != nil {
		return err
	}
	if len(works.Items) != len(s.spokes) {
		return fmt.Errorf("%d ManifestWorks for %d spokes", len(works.Items), len(s.spokes))
	}
	found := 0
	for i := range works.Items {
		for _, manifest := range works.Items[i].Spec.Workload.Manifests {
			for _, word := range []string{`"build"`, `"sign"`, `"keySecret"`, `"certSecret"`, `"secrets"`, "Secret"} {
				found += strings.Count(string(manifest.Raw), word)
			}
		}
	}
	s.Extra["secretsInWork"] = found
	if found > 0 {
		return fmt.Errorf("ManifestWorks name builds, signatures or Secrets %d times", found)
	}
	return nil
}

// hubRestarts ends the hub's pod. The next one finds all as it shall be.
func (s *steps) hubRestarts(ctx context.Context, by string) error {
	log, err := audit.Open(s.Cluster.AuditLog)
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "rollout", "restart", "deployment/"+hubName); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the hub's operator is ready again, and alone", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": hubName}); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return s.hubDeployed(ctx)
	}); err != nil {
		return err
	}
	if err := s.Throughout(ctx, quiet, func(ctx context.Context) error {
		return s.hubSays(ctx, "nic-"+by, metav1.ConditionTrue, v1beta1.ReasonReady)
	}); err != nil {
		return err
	}
	requests, err := log.Next()
	if err != nil {
		return err
	}
	var writes []string
	for _, r := range audit.OurWrites(requests) {
		if r.ObjectRef.Resource != "events" { // a new leader is one
			writes = append(writes, r.Verb+" "+r.Resource()+" "+r.ObjectRef.Name)
		}
	}
	before, _ := s.Extra["hubRestartWrites"].(int)
	s.Extra["hubRestartWrites"] = before + len(writes)
	if len(writes) > 0 {
		return fmt.Errorf("a hub that restarted wrote: %s", strings.Join(writes, ", "))
	}
	return nil
}

// byWorks does a step with what goes by ManifestWorks.
func (s *steps) byWorks(do func(context.Context, string) error) func(context.Context) error {
	return func(ctx context.Context) error { return do(ctx, "manifestwork") }
}

// change changes a ManagedClusterModule.
func (s *steps) change(ctx context.Context, by string, edit func(*hubv1beta1.ManagedClusterModule)) error {
	m := &hubv1beta1.ManagedClusterModule{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: "nic-" + by}, m); err != nil {
		return err
	}
	before := m.DeepCopy()
	edit(m)
	return s.Client.Patch(ctx, m, client.MergeFrom(before))
}

// badBuild rolls out a build that no kernel takes, and then one that all do.
func (s *steps) badBuild(ctx context.Context, by string) error {
	north, south := s.spokes["north"], s.spokes["south"]
	for _, one := range s.spokes {
		if err := one.fleet.Debug(ctx, "/recipe?recipe=vermagic&detail=1.2.3&pattern=hub-"+by+"-bad"); err != nil {
			return err
		}
	}
	to := func(repository string) func(*hubv1beta1.ManagedClusterModule) {
		return func(m *hubv1beta1.ManagedClusterModule) {
			m.Spec.ModuleSpec.ModuleLoader.Container.KernelMappings[0].ContainerImage = builds.PodRegistry + "/made/" + repository +
				":${KERNEL_FULL_VERSION}"
		}
	}
	if err := s.change(ctx, by, to("hub-"+by+"-bad")); err != nil {
		return err
	}
	if err := s.Within(ctx, builds.BuildPatience, "the hub says which cluster failed, and stops", func(ctx context.Context) error {
		return s.hubSays(ctx, "nic-"+by, metav1.ConditionFalse, v1beta1.ReasonRolledBack, "cluster "+s.clusterOf(by, "north"),
			v1beta1.ReasonVermagicMismatch,
			"stopped in wave canary")
	}); err != nil {
		return err
	}
	if err := s.Throughout(ctx, quiet, func(ctx context.Context) error {
		module := &v1beta1.Module{}
		if err := south.admin.Get(ctx, client.ObjectKey{Namespace: spokeSpace, Name: "nic-" + by}, module); err != nil {
			return err
		}
		if image := module.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage; strings.Contains(image, "-bad") {
			return fmt.Errorf("south was sent %s", image)
		}
		return south.loadedOn(ctx, spokeNodes)
	}); err != nil {
		return err
	}
	if err := s.commandSays(ctx, "explain", "nic-"+by, "no  RolledBack", "-n "+spokeSpace+" --context "+s.clusterOf(by, "north")); err != nil {
		return err
	}
	s.Extra["waveStopped"] = true
	if err := s.change(ctx, by, to("hub-"+by)); err != nil {
		return err
	}
	return s.Within(ctx, builds.BuildPatience, "both clusters are Ready again", func(ctx context.Context) error {
		return errors.Join(s.hubSays(ctx, "nic-"+by, metav1.ConditionTrue, v1beta1.ReasonReady), north.loadedOn(ctx, spokeNodes),
			south.loadedOn(ctx, spokeNodes))
	})
}

// clusterOf is how the hub calls a spoke that it reaches by a transport.
func (s *steps) clusterOf(by, site string) string {
	if by == "direct" {
		return "metal-" + site
	}
	return site
}

// cut cuts a spoke off from its hub, and returns what connects it again.
func (s *steps) cut(ctx context.Context, by string, one *spoke) (mend func() error, err error) {
	if by == "manifestwork" {
		if err := one.agent.Stop(); err != nil {
			return nil, err
		}
		one.agent = nil
		return func() error {
			binary, err := s.workAgent(ctx)
			if err != nil {
				return err
			}
			return s.startAgent(ctx, one, binary)
		}, nil
	}
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: "metal-" + one.name}, secret); err != nil {
		return nil, err
	}
	good := secret.Data[direct.KubeconfigKey]
	set := func(kubeconfig []byte) error {
		before := secret.DeepCopy()
		secret.Data[direct.KubeconfigKey] = kubeconfig
		return s.Client.Patch(ctx, secret, client.MergeFrom(before))
	}
	away := strings.Replace(string(good), "server: https://"+node.Gateway+":", "server: https://"+node.Gateway+":1 # ", 1)
	if away == string(good) {
		return nil, errors.New("the kubeconfig names no server of the gateway's")
	}
	return func() error { return set(good) }, set([]byte(away))
}

// cutOff changes what a spoke shall have while nobody can tell it.
func (s *steps) cutOff(ctx context.Context, by string) error {
	south := s.spokes["south"]
	mend, err := s.cut(ctx, by, south)
	if err != nil {
		return err
	}
	if err := s.change(ctx, by, func(m *hubv1beta1.ManagedClusterModule) {
		m.Spec.ModuleSpec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1"}
	}); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the canary has the change",
		func(ctx context.Context) error { return s.spokes["north"].has(ctx, "debug", "1") }); err != nil {
		return err
	}
	if err := south.does(ctx, "rmmod", "module", loads.Sample); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the spoke that is cut off heals itself",
		func(ctx context.Context) error { return south.loadedOn(ctx, spokeNodes) }); err != nil {
		return err
	}
	if err := south.has(ctx, "debug", "1"); err == nil {
		return errors.New("a spoke that was cut off has the change")
	}
	s.Extra["spokeOfflineKept"] = true
	if err := mend(); err != nil {
		return err
	}
	return s.Eventually(ctx, "it catches up", func(ctx context.Context) error {
		return errors.Join(south.has(ctx, "debug", "1"), s.hubSays(ctx, "nic-"+by, metav1.ConditionTrue, v1beta1.ReasonReady))
	})
}

// has checks a parameter of the sample on all nodes.
func (one *spoke) has(ctx context.Context, parameter, value string) error {
	truth, err := one.fleet.Truth(ctx)
	if err != nil {
		return err
	}
	for _, n := range truth {
		for _, m := range n.Loaded {
			if m.Name == loads.Sample && m.Params[parameter] != value {
				return fmt.Errorf("%s of %s has %s=%q", n.Name, one.name, parameter, m.Params[parameter])
			}
		}
	}
	return one.loadedOn(ctx, spokeNodes)
}

// leaves deselects one cluster, and then deletes the ManagedClusterModule.
func (s *steps) leaves(ctx context.Context, by string) error {
	if err := s.relabel(ctx, by, "south", "none"); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the deselected cluster has unloaded it", func(ctx context.Context) error {
		return errors.Join(s.spokes["south"].loadedOn(ctx, 0), s.spokes["south"].forgot(ctx, by), s.spokes["north"].loadedOn(ctx, spokeNodes))
	}); err != nil {
		return err
	}
	s.Extra["deselectedCleaned"] = true
	if err := errors.Join(s.relabel(ctx, by, "south", by), s.Client.Delete(ctx, s.managed(by))); err != nil {
		return err
	}
	return s.Eventually(ctx, "nothing is left of it", func(ctx context.Context) error {
		var works workv1.ManifestWorkList
		if err := s.Client.List(ctx, &works); err != nil {
			return err
		}
		if len(works.Items) > 0 {
			return fmt.Errorf("%d ManifestWorks are left", len(works.Items))
		}
		errs := []error{s.Gone(ctx, s.managed(by))}
		for _, one := range s.spokes {
			errs = append(errs, one.loadedOn(ctx, 0), one.forgot(ctx, by))
		}
		return errors.Join(errs...)
	})
}

// forgot checks that a spoke has no Module of a transport.
func (one *spoke) forgot(ctx context.Context, by string) error {
	err := one.admin.Get(ctx, client.ObjectKey{Namespace: spokeSpace, Name: "nic-" + by}, &v1beta1.Module{})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		return fmt.Errorf("%s still has the Module", one.name)
	}
	return nil
}

// relabel gives a cluster another label by which it is selected.
func (s *steps) relabel(ctx context.Context, by, site, value string) error {
	var o client.Object = &clusterv1.ManagedCluster{}
	key := client.ObjectKey{Name: site}
	if by == "direct" {
		o, key = &corev1.Secret{}, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: "metal-" + site}
	}
	if err := s.Client.Get(ctx, key, o); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, byLabel, value)
	return s.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// directly does all of it once more, by kubeconfigs.
func (s *steps) directly(ctx context.Context) error {
	const by = "direct"
	if err := s.Client.Create(ctx, s.managed(by)); err != nil {
		return err
	}
	if err := s.Within(ctx, builds.BuildPatience, "both clusters are Ready", func(ctx context.Context) error {
		return errors.Join(s.hubSays(ctx, "nic-"+by, metav1.ConditionTrue, v1beta1.ReasonReady, "2 clusters"), s.loadedEverywhere(ctx))
	}); err != nil {
		return err
	}
	for _, do := range []func(context.Context, string) error{s.hubRestarts, s.badBuild, s.cutOff, s.leaves} {
		if err := do(ctx, by); err != nil {
			return err
		}
	}
	s.Extra["transports"] = []string{"manifestwork", by}
	return nil
}
