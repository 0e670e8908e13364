// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// nativeModule is the Module that nativeSample leaves loaded.
var nativeModule = client.ObjectKey{Namespace: nativeSpace, Name: "native"}

// registryWiped: a node that holds the artifact needs no registry, not even over a reboot, and asks
// for no build. When another node needs the image, it is built again, by one Job that the Module's
// condition tells of, and the first node is left alone.
func (s *Steps) registryWiped(ctx context.Context) error {
	log, err := audit.Open(s.Cluster.AuditLog)
	if err != nil {
		return err
	}
	repository, _, _ := strings.Cut(s.repository(s.sampleModule(nativeModule.Name, "sample")), ":")
	if err := s.Registry.Wipe(ctx, repository); err != nil {
		return err
	}
	if _, err := s.modulesIn(ctx, s.repository(s.sampleModule(nativeModule.Name, "sample"))); !registry.IsMissing(err) {
		return fmt.Errorf("the image is still in the registry: %w", errors.Join(errors.New("answer"), err))
	}
	if err := s.Reboot(ctx); err != nil {
		return err
	}
	goesOn := func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, nativeModule, loads.Sample), s.Expect(ctx, artifacts.Linux61, suite.Loads, "1"),
			s.Deployed(ctx))
	}
	if err := s.Eventually(ctx, "the module is loaded after a reboot", goesOn); err != nil {
		return err
	}
	if jobs, err := JobsMade(log); err != nil || len(jobs) != 0 {
		return errors.Join(err, fmt.Errorf("the Jobs %v were made although no node needs an image", jobs))
	}
	if err := s.StartSeries(ctx, suite.Needy, artifacts.Linux61, 1); err != nil {
		return err
	}
	return s.healed(ctx, log, goesOn)
}

// healed lets the second node need the image.
func (s *Steps) healed(ctx context.Context, log *audit.Log, goesOn func(context.Context) error) error {
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, nativeModule, m); err != nil {
		return err
	}
	before := m.DeepCopy()
	m.Spec.Selector = map[string]string{suite.LoadsLabel: "true"}
	if err := s.Client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.Eventually(ctx, "the Module says that the registry has lost its image", func(ctx context.Context) error {
		if err := s.ConditionIs(ctx, nativeModule, v1beta1.ConditionImagesAvailable, "False", v1beta1.ReasonImageNotFound); err != nil {
			return err
		}
		now := &v1beta1.Module{}
		if err := s.Client.Get(ctx, nativeModule, now); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(now.Status.Conditions, v1beta1.ConditionImagesAvailable); !strings.Contains(c.Message,
			"makes it again") {
			return fmt.Errorf("it says %s", c.Message)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.Within(ctx, BuildPatience, "the image was made again, and both nodes hold it", func(ctx context.Context) error {
		return errors.Join(
			s.ConditionIs(ctx, nativeModule, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable),
			s.Ready(ctx, suite.Needy, nativeModule, loads.Sample), goesOn(ctx), s.signedWhole(ctx, s.repository(m), loads.Sample),
		)
	}); err != nil {
		return err
	}
	s.Figures["healedSeconds"] = time.Since(begin).Round(time.Second).Seconds()
	jobs, err := JobsMade(log)
	if err == nil && (len(jobs) != 1 || !slices.ContainsFunc(jobs, func(name string) bool { return strings.HasSuffix(name, "-2") })) {
		err = fmt.Errorf("instead of the second Job of the image there are %v", jobs)
	}
	return err
}
