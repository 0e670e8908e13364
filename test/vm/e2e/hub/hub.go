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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/node"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// hubName is the operator's on the hub.
	hubName = "drover-hub"
	// spokeSpace is the namespace of Modules on spokes.
	spokeSpace = "drivers"
	// byLabel tells by which transport a ManagedClusterModule's clusters are reached.
	byLabel = "e2e.drover.dev/by"
)

// hubSources is the ConfigMap of the sample's source on the hub.
const hubSources = "sample"

// startHub starts a cluster that has a node which builds, and Drover's hub on it. Open Cluster
// Management is not there yet.
func (s *steps) startHub(ctx context.Context) (err error) {
	if s.Cluster, err = devcluster.Start(ctx, devcluster.Options{
		Dir: filepath.Join(s.Dir, "cluster"), AdvertiseAddress: node.Gateway, ExtraSANs: []string{node.Gateway},
		NodeHostAliases: []string{suite.BuilderName}, NodeTokens: []string{suite.BuilderName},
	}); err != nil {
		return err
	}
	if err := s.Connect(); err != nil {
		return err
	}
	if s.Registry, err = registry.Start(); err != nil {
		return err
	}
	s.SpokePorts = map[string]int{}
	for name := range spokeKernels {
		if s.SpokePorts[name], err = freePort(); err != nil {
			return err
		}
	}
	if err := s.Registry.PushPause(ctx, s.Images.Pause); err != nil {
		return err
	}
	for _, name := range []string{"drover-operator", "drover-signer"} {
		if err := s.PushProgram(ctx, name); err != nil {
			return err
		}
	}
	if err := s.pushToolchains(ctx); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(s.Cache.Repository(), "config/hub")); err != nil {
		return err
	}
	if err := errors.Join(s.hubInputs(ctx), s.StartBuilder(ctx)); err != nil {
		return err
	}
	return s.Eventually(ctx, "the hub's operator is ready", s.hubDeployed)
}

// pushToolchains pushes a compiler and the headers of all spokes' kernels.
func (s *steps) pushToolchains(ctx context.Context) error {
	toolchain, err := s.Cache.Toolchain(ctx, s.Release())
	if err != nil {
		return err
	}
	if _, err := s.PushArchive(ctx, toolchain, builds.ToolchainImage); err != nil {
		return err
	}
	for _, series := range spokeKernels {
		if err := s.PushHeaders(ctx, s.Images.Kernels[series].Release); err != nil {
			return err
		}
	}
	return nil
}

// hubInputs are what images are made from, in the operator's own namespace.
func (s *steps) hubInputs(ctx context.Context) error {
	if err := s.BuildInputs(ctx, suite.OperatorNamespace); err != nil {
		return err
	}
	files, err := s.SampleFiles(loads.Sample, "")
	if err != nil {
		return err
	}
	return s.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: suite.OperatorNamespace, Name: hubSources},
		Data: files})
}

func (s *steps) hubDeployed(ctx context.Context) error {
	d := &appsv1.Deployment{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: hubName}, d)
	if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas == 0) {
		err = errors.New("it is not available")
	}
	return err
}

// managed is a ManagedClusterModule for the clusters of one transport, north first.
func (s *steps) managed(by string) *hubv1beta1.ManagedClusterModule {
	container := v1beta1.ModuleLoaderContainerSpec{
		Modprobe: v1beta1.ModprobeSpec{ModuleName: loads.Sample},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: builds.PodRegistry + "/made/hub-" + by +
			":${KERNEL_FULL_VERSION}"}},
		RegistryTLS: v1beta1.TLSOptions{Insecure: true},
		Build:       builds.NativeBuild(builds.CompileSample),
		Sign: &v1beta1.Sign{
			KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"},
			FilesToSign: []string{"/opt/lib/modules/*/extra/packed/*.ko"},
		},
	}
	container.Build.Native.SourceConfigMap = &corev1.LocalObjectReference{Name: hubSources}
	container.Build.Selector = map[string]string{builds.BuilderLabel: "true"}
	return &hubv1beta1.ManagedClusterModule{
		ObjectMeta: metav1.ObjectMeta{Name: "nic-" + by},
		Spec: hubv1beta1.ManagedClusterModuleSpec{
			SpokeNamespace: spokeSpace, Selector: map[string]string{byLabel: by},
			ModuleSpec: v1beta1.ModuleSpec{
				Selector: map[string]string{"drover.dev/hollow": "true"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: container},
			},
			Rollout: &hubv1beta1.ClusterRollout{Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{siteLabel: "north"}}}},
		},
	}
}

// hubSays checks the condition Ready of a ManagedClusterModule.
func (s *steps) hubSays(ctx context.Context, name string, status metav1.ConditionStatus, reason string, words ...string) error {
	m := &hubv1beta1.ManagedClusterModule{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, m); err != nil {
		return err
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != status || c.Reason != reason || m.Status.ObservedGeneration != m.Generation {
		return fmt.Errorf("%s says %+v instead of %s %s; status %+v", name, c, status, reason, m.Status)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			return fmt.Errorf("%s says %q, without %q", name, c.Message, word)
		}
	}
	return nil
}

// withoutOCM: a ManagedClusterModule that comes first says what is missing, and nothing fails.
func (s *steps) withoutOCM(ctx context.Context) error {
	if err := s.Client.Create(ctx, s.managed("manifestwork")); err != nil {
		return err
	}
	return s.Eventually(ctx, "the hub says that Open Cluster Management is not installed", func(ctx context.Context) error {
		return s.hubSays(ctx, "nic-manifestwork", metav1.ConditionTrue, v1beta1.ReasonNoNodes, "not installed on the hub: manifestwork")
	})
}

// ocmDefinitions are the files of Open Cluster Management's kinds, which come with the module of
// its API.
func (s *steps) ocmDefinitions(ctx context.Context, files ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api")
	cmd.Dir = s.Cache.Repository()
	dir, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the API of Open Cluster Management: %w", err)
	}
	var paths []string
	for _, file := range files {
		paths = append(paths, "-f", filepath.Join(strings.TrimSpace(string(dir)), file))
	}
	return paths, nil
}

// installOCM installs the hub's side of Open Cluster Management.
func (s *steps) installOCM(ctx context.Context) error {
	files, err := s.ocmDefinitions(ctx, "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
		"work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml")
	if err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, append([]string{"apply", "--server-side"}, files...)...)
	return err
}

// madeOnHub checks how many Jobs were made on the hub, and that none were on spokes.
func (s *steps) madeOnHub(ctx context.Context, want int) error {
	made, err := builds.JobsMade(audit.Whole(s.Cluster.AuditLog))
	if err != nil {
		return err
	}
	hub := len(made)
	s.Extra["buildsOnHub"] = hub
	elsewhere := 0
	for _, spoke := range s.spokes {
		made, err := builds.JobsMade(audit.Whole(spoke.fleet.Cluster.AuditLog))
		if err != nil {
			return err
		}
		elsewhere += len(made)
	}
	s.Extra["buildsOnSpokes"] = elsewhere
	if hub != want || elsewhere != 0 {
		return fmt.Errorf("%d Jobs on the hub instead of %d, %d on spokes", hub, want, elsewhere)
	}
	return nil
}

// vermagics pulls each kernel's image back from the registry, and looks what its kernel module was
// built for.
func (s *steps) vermagics(ctx context.Context, by string) error {
	matching := 0
	for _, series := range spokeKernels {
		release := s.Images.Kernels[series].Release
		files, err := s.FilesIn(ctx, "made/hub-"+by+":"+suite.TagOf(release))
		if err != nil {
			return err
		}
		info, err := kmod.Read(files[loads.Sample])
		if err != nil {
			return err
		}
		if strings.Fields(info.Vermagic)[0] != release {
			return fmt.Errorf("the image for %s has a kernel module for %q", release, info.Vermagic)
		}
		matching++
	}
	s.Extra["vermagicMatches"] = matching
	return nil
}
