// SPDX-License-Identifier: Apache-2.0

//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// ahead is a Module that no node asks for: only preflights look at its image, which is the loaded
// Module's.
var ahead = client.ObjectKey{Namespace: "e2e-ahead", Name: "ahead"}

// examined: nothing is installed that builds or signs, and preflights tell which kernels the
// registry has an image for. The namespace admits only what is restricted.
func (s *steps) examined(ctx context.Context) error {
	const never = "6.1.0-9999-amd64"
	if err := s.Namespace(ctx, ahead.Namespace, "restricted"); err != nil {
		return err
	}
	m := loads.Module(ahead, "", builds.PodRegistry+"/kmods/drover-sample:1.0-${KERNEL_FULL_VERSION}", loads.Sample)
	m.Spec.Selector = map[string]string{"e2e-ahead": "yes", corev1.LabelArchStable: "amd64"}
	m.Spec.ModuleLoader.Container.RegistryTLS.Insecure = true
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	for _, ask := range []struct {
		kernel, reason string
		status         v1beta2.VerificationStatus
	}{
		{kernel: s.Images.Kernels[artifacts.Linux61].Release, status: v1beta2.VerificationSuccess},
		{kernel: never, status: v1beta2.VerificationFailure, reason: v1beta1.ReasonImageNotFound},
	} {
		p := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: "ahead"},
			Spec: v1beta2.PreflightValidationSpec{KernelVersion: ask.kernel, Labels: m.Spec.Selector}}
		if err := s.Client.Create(ctx, p); err != nil {
			return err
		}
		if err := s.Eventually(ctx, "a preflight's answer for kernel "+ask.kernel, func(ctx context.Context) error {
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
			if err == nil && (len(p.Status.Modules) != 1 || p.Status.Modules[0].VerificationStatus != ask.status ||
				p.Status.Modules[0].Reason != ask.reason) {
				err = fmt.Errorf("it says %+v", p.Status.Modules)
			}
			return err
		}); err != nil {
			return err
		}
		if err := errors.Join(s.byTheOperatorsImage(ctx), s.goes(ctx, p)); err != nil {
			return err
		}
	}
	return s.goes(ctx, m, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ahead.Namespace}})
}

// goes deletes objects, one after the other.
func (s *steps) goes(ctx context.Context, all ...client.Object) error {
	for _, o := range all {
		if err := s.Client.Delete(ctx, o); err != nil {
			return err
		}
		if err := s.Eventually(ctx, o.GetName()+" is gone", func(ctx context.Context) error { return s.Gone(ctx, o) }); err != nil {
			return err
		}
	}
	return nil
}

// byTheOperatorsImage checks that Jobs' pods were of the image that the operator itself runs.
func (s *steps) byTheOperatorsImage(ctx context.Context) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(ahead.Namespace), client.HasLabels{v1alpha1.ImageLabel}); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("no pod has examined the image")
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		ran := p.Status.ContainerStatuses
		if len(ran) != 1 || !strings.HasSuffix(ran[0].ImageID, s.digests[newer]["drover-operator"]) {
			return fmt.Errorf("pod %s is not of the operator's image: %+v", p.Name, ran)
		}
	}
	return s.Expect(ctx, artifacts.Linux61, suite.Loads, "1")
}
