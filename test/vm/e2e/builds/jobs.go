// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/vm/registry"
)

// toggled is a Module whose builds wait for a node that does not exist: its Jobs are the cluster's
// own, and cost the virtual node nothing.
var toggled = client.ObjectKey{Namespace: nativeSpace, Name: "toggled"}

// input changes one thing that an image is made from.
type input struct {
	what   string
	change func(*v1beta1.ModuleLoaderContainerSpec)
}

// inputs are one of each kind; together with none of them they are one more than there are.
var inputs = []input{
	{"a build argument", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "b"}}
	}},
	{"a mapping's argument", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.KernelMappings[0].Build = &v1beta1.Build{BuildArgs: []v1beta1.BuildArg{{Name: "A", Value: "c"}}}
	}},
	{"the source", func(c *v1beta1.ModuleLoaderContainerSpec) { c.Build.Native.SourceConfigMap.Name = "toggled" }},
	{"the command", func(c *v1beta1.ModuleLoaderContainerSpec) { c.Build.Native.Command = []string{"make", "all"} }},
	{"the artifacts", func(c *v1beta1.ModuleLoaderContainerSpec) { c.Build.Native.Artifacts = []string{"*.ko"} }},
	{"the toolchain", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build.Native.ToolchainImage = registry.Host + "/tools/toolchain:13"
	}},
	{"the headers", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build.Native.HeadersImage = registry.Host + "/tools/headers:other"
	}},
	{"the key", func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign.KeySecret.Name = "other" }},
	{"the files to sign", func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign.FilesToSign = []string{"/opt/**/*.ko"} }},
	{"the image's name", func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].ContainerImage += "-other" }},
}

// exactlyOnce goes twice through all inputs, which makes 20 toggles: each input has its Job the
// first time, and none the second. Then it leaves inputs that were really built, and comes back to
// them.
func (s *Steps) exactlyOnce(ctx context.Context) error {
	log, err := audit.Open(s.Cluster.AuditLog)
	if err != nil {
		return err
	}
	if err := s.sampleSource(ctx, toggled.Name, "\nint other;\n"); err != nil {
		return err
	}
	base := s.sampleModule(toggled.Name, "sample")
	base.Spec.ModuleLoader.Container.Build.Selector = map[string]string{"drover.example/none": "true"}
	base.Spec.ModuleLoader.Container.Modprobe.ModuleName = "toggled" // the sample is another Module's
	now := base.DeepCopy()
	if err := s.Client.Create(ctx, now); err != nil {
		return err
	}
	known := map[string]string{}
	if known[""], err = s.jobOf(ctx, known, ""); err != nil {
		return err
	}
	toggles := 0
	for range 2 {
		for _, i := range inputs {
			before := now.DeepCopy()
			now.Spec = *base.Spec.DeepCopy()
			i.change(&now.Spec.ModuleLoader.Container)
			if err := s.Client.Patch(ctx, now, client.MergeFrom(before)); err != nil {
				return err
			}
			if known[i.what], err = s.jobOf(ctx, known, i.what); err != nil {
				return err
			}
			toggles++
		}
	}
	jobs, err := JobsMade(log)
	if err != nil {
		return err
	}
	s.Figures["toggles"], s.Figures["inputs"], s.Figures["jobs"] = float64(toggles), float64(len(known)), float64(len(jobs))
	for _, image := range known {
		if !slices.Contains(jobs, image+"-1") {
			err = errors.Join(err, fmt.Errorf("image %s has no Job", image))
		}
	}
	if len(jobs) != len(known) {
		err = errors.Join(err, fmt.Errorf("%d Jobs for %d inputs: %v", len(jobs), len(known), jobs))
	}
	if err != nil {
		return err
	}
	if err := s.removed(ctx, now); err != nil {
		return err
	}
	return s.thereAndBack(ctx, log)
}

// jobOf waits until the toggled Module wants one image only, of this input, and its Job is at work,
// and no other's is. It returns the image.
func (s *Steps) jobOf(ctx context.Context, known map[string]string, what string) (wanted string, err error) {
	err = s.Eventually(ctx, "the Job for "+what+" is at work, and no other", func(ctx context.Context) error {
		var list v1alpha1.ModuleImageList
		var jobs batchv1.JobList
		mine, in := client.MatchingLabels{v1beta1.ModuleNameLabel: toggled.Name}, client.InNamespace(toggled.Namespace)
		if err := errors.Join(s.Client.List(ctx, &list, in, mine), s.Client.List(ctx, &jobs, in, mine)); err != nil {
			return err
		}
		var wants, works []string
		for i := range list.Items {
			if len(list.Items[i].Spec.WantedBy) > 0 {
				wants = append(wants, list.Items[i].Name)
			}
		}
		for i := range jobs.Items {
			if !ptr.Deref(jobs.Items[i].Spec.Suspend, false) {
				works = append(works, jobs.Items[i].Labels[v1alpha1.ImageLabel])
			}
		}
		if len(wants) != 1 || !slices.Equal(wants, works) {
			return fmt.Errorf("wanted are %v, at work %v", wants, works)
		}
		wanted = wants[0]
		for other, image := range known {
			if (other == what) != (image == wanted) {
				return fmt.Errorf("wanted is %s, which is that of %q: %s", wanted, other, image)
			}
		}
		return nil
	})
	return wanted, err
}

// thereAndBack: what was begun for other inputs rests, its pod is gone, and what was built needs no
// Job.
func (s *Steps) thereAndBack(ctx context.Context, log *audit.Log) error {
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, nativeModule, m); err != nil {
		return err
	}
	before := m.DeepCopy()
	m.Spec.ModuleLoader.Container.Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "b"}}
	if err := s.Client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	own := []client.ListOption{
		client.InNamespace(nativeModule.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: nativeModule.Name},
		client.HasLabels{v1alpha1.ImageLabel},
	}
	pods := func(ctx context.Context) (running int, err error) {
		var list corev1.PodList
		err = s.Client.List(ctx, &list, own...)
		for i := range list.Items {
			if phase := list.Items[i].Status.Phase; phase == corev1.PodPending || phase == corev1.PodRunning {
				running++
			}
		}
		return running, err
	}
	if err := s.Eventually(ctx, "a pod builds with the other argument", func(ctx context.Context) error {
		if n, err := pods(ctx); err != nil || n != 1 {
			return errors.Join(err, fmt.Errorf("%d pods are at work", n))
		}
		return nil
	}); err != nil {
		return err
	}
	other := m.DeepCopy()
	m.Spec = before.Spec
	if err := s.Client.Patch(ctx, m, client.MergeFrom(other)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the image is available at once, and the pod is gone", func(ctx context.Context) error {
		n, err := pods(ctx)
		if err == nil && n != 0 {
			err = fmt.Errorf("%d pods are at work", n)
		}
		return errors.Join(err, s.ConditionIs(ctx, nativeModule, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable))
	}); err != nil {
		return err
	}
	jobs, err := JobsMade(log)
	if err == nil && len(jobs) != 1 {
		err = fmt.Errorf("instead of one Job, for the other argument, there are %v", jobs)
	}
	return err
}

// JobsMade are the names of the Jobs that were created since the last call, by whomever, from the
// audit log.
func JobsMade(log *audit.Log) (names []string, err error) {
	requests, err := log.Next()
	for i := range requests {
		if r := &requests[i]; r.Verb == "create" && r.Resource() == "jobs" && r.ResponseStatus.Code == 201 {
			names = append(names, r.ObjectRef.Name)
		}
	}
	return names, err
}

// neverUnsigned looks through all images that the registry was ever sent. Signing adds a layer, so
// that the layer below has the module as it was built; no manifest may name that one alone.
func (s *Steps) neverUnsigned(context.Context) error {
	var errs []error
	pushed := 0
	pushes := s.Registry.Pushes()
	for i := range pushes {
		p := &pushes[i]
		if !p.Manifest {
			continue
		}
		pushed += len(p.Modules)
		if unsigned := p.Unsigned(); len(unsigned) > 0 {
			errs = append(errs, fmt.Errorf("%s got %s with modules that are not signed: %s", p.Repository, p.Reference,
				strings.Join(unsigned, ", ")))
		}
	}
	s.Figures["modulesPushed"] = float64(pushed)
	// From a Dockerfile, natively, and again after the registry was wiped.
	if pushed < 3 {
		errs = append(errs, fmt.Errorf("the registry was sent %d modules in all", pushed))
	}
	return errors.Join(errs...)
}
