// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/vm/artifacts"
)

const (
	// compileSample builds the sample in the working directory, below the headers that the pod mounts.
	compileSample = "make -C /headers M=/build modules"
	// toggles of one input, between two values that were both built before.
	toggles = 20
	// errorWithin bounds how long a compiler's line takes from the container's end into the condition, seconds.
	errorWithin = 30
)

// nativeSample builds our sample from a ConfigMap, signs it, and loads it.
func (s *suite) nativeSample(ctx context.Context) error {
	if err := s.sampleSource(ctx, "sample", ""); err != nil {
		return err
	}
	m := s.sampleModule("native", "sample")
	return s.buildAndLoad(ctx, m, []string{sample}, &packageResult{}, false)
}

// sampleModule builds natively from a ConfigMap.
func (s *suite) sampleModule(name, source string) *v1beta1.Module {
	m := s.made(client.ObjectKey{Namespace: nativeSpace, Name: name}, []string{sample})
	m.Spec.ModuleLoader.Container.Build = nativeBuild(compileSample)
	m.Spec.ModuleLoader.Container.Build.Native.SourceConfigMap = &corev1.LocalObjectReference{Name: source}
	return m
}

// sampleSource makes a ConfigMap of the sample's source, with more text in its program.
func (s *suite) sampleSource(ctx context.Context, name, more string) error {
	entries, err := os.ReadDir(s.source("drover-sample"))
	if err != nil {
		return err
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: nativeSpace, Name: name}, Data: map[string]string{}}
	for _, entry := range entries {
		content, err := readFile(filepath.Join(s.source("drover-sample"), entry.Name()))
		if err != nil {
			return err
		}
		config.Data[entry.Name()] = string(content)
		if strings.HasSuffix(entry.Name(), ".c") {
			config.Data[entry.Name()] += more
		}
	}
	return s.client.Create(ctx, config)
}

// dockerSample builds the same from a Dockerfile, with a base image that Buildah finds at a mirror.
func (s *suite) dockerSample(ctx context.Context) error {
	if err := s.pushSource(ctx, s.source("drover-sample"), "sources/sample:1"); err != nil {
		return err
	}
	if err := s.dockerfile(ctx, "sample", dockerfileOf("sources/sample:1", compileSample, s.release())); err != nil {
		return err
	}
	m := s.made(client.ObjectKey{Namespace: dockerSpace, Name: "docker"}, []string{sample})
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "sample"}}
	return s.buildAndLoad(ctx, m, []string{sample}, &packageResult{}, false)
}

// compilerLine: what the compiler says about a mistake is in the condition soon after.
func (s *suite) compilerLine(ctx context.Context) error {
	if err := s.sampleSource(ctx, "mistake", "\nint mistake = no_such_thing;\n"); err != nil {
		return err
	}
	m := s.sampleModule("mistake", "mistake")
	key := client.ObjectKeyFromObject(m)
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	err := s.within(ctx, buildPatience, "the condition quotes the compiler", func(ctx context.Context) error {
		if err := s.conditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "False", v1beta1.ReasonBuildFailed); err != nil {
			return err
		}
		now := &v1beta1.Module{}
		if err := s.client.Get(ctx, key, now); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(now.Status.Conditions, v1beta1.ConditionImagesAvailable); !strings.Contains(c.Message, "no_such_thing") {
			return fmt.Errorf("it says %s", c.Message)
		}
		return nil
	})
	if err != nil {
		return err
	}
	seen := time.Now()
	ended, err := s.buildEnded(ctx, nativeSpace, key.Name)
	if err != nil {
		return err
	}
	s.figures["errorLineSeconds"] = seen.Sub(ended).Round(time.Second).Seconds()
	if s.figures["errorLineSeconds"] > errorWithin {
		return fmt.Errorf("the line took %.0f s", s.figures["errorLineSeconds"])
	}
	return s.remove(ctx, key, sample)
}

// buildEnded is when a Module's first build ended.
func (s *suite) buildEnded(ctx context.Context, space, module string) (time.Time, error) {
	var pods corev1.PodList
	err := s.client.List(ctx, &pods, client.InNamespace(space), client.MatchingLabels{v1beta1.ModuleNameLabel: module}, client.HasLabels{v1alpha1.ImageLabel})
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.InitContainerStatuses {
			if t := c.State.Terminated; c.Name == "build" && t != nil && (first.IsZero() || t.FinishedAt.Time.Before(first)) {
				first = t.FinishedAt.Time
			}
		}
	}
	if first.IsZero() {
		return first, errors.New("no pod of a build is there")
	}
	return first, nil
}

// exactlyOnce toggles an input: two Jobs in all, from the audit log.
func (s *suite) exactlyOnce(ctx context.Context) error {
	log, err := audit.Open(s.cluster.AuditLog)
	if err != nil {
		return err
	}
	if _, err := log.Next(); err != nil { // what was before
		return err
	}
	m := s.sampleModule("toggled", "sample")
	key := client.ObjectKeyFromObject(m)
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	for i := range toggles {
		value := []string{"a", "b"}[i%2]
		base := m.DeepCopy()
		m.Spec.ModuleLoader.Container.Build.BuildArgs = []v1beta1.BuildArg{{Name: "TOGGLE", Value: value}}
		if err := s.client.Patch(ctx, m, client.MergeFrom(base)); err != nil {
			return err
		}
		if err := s.eventually(ctx, "the image of this input is wanted", func(ctx context.Context) error { return s.wanted(ctx, key, value) }); err != nil {
			return err
		}
		if i < 2 { // both are made once; later they only have to be found
			if err := s.within(ctx, buildPatience, "the image is there", func(ctx context.Context) error {
				return s.conditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable)
			}); err != nil {
				return err
			}
		}
	}
	requests, err := log.Next()
	if err != nil {
		return err
	}
	made := 0
	for _, r := range audit.OurWrites(requests) {
		if r.Verb == "create" && strings.HasPrefix(r.Resource(), "jobs") {
			made++
		}
	}
	// The input without the argument may have got its Job before the first toggle.
	s.figures["jobs"] = float64(made)
	if made != 2 && made != 3 {
		return fmt.Errorf("%d Jobs for two inputs and %d toggles", made, toggles)
	}
	return s.remove(ctx, key, sample)
}

// wanted checks that exactly the image with this argument is.
func (s *suite) wanted(ctx context.Context, key client.ObjectKey, value string) error {
	var list v1alpha1.ModuleImageList
	if err := s.client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: key.Name}); err != nil {
		return err
	}
	for i := range list.Items {
		if image := &list.Items[i]; len(image.Spec.WantedBy) > 0 {
			for _, arg := range image.Spec.Build.Args {
				if arg.Name == "TOGGLE" && arg.Value == value {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("no image with TOGGLE=%s is wanted", value)
}

// registryWiped: what the registry forgot is made again when the Module asks for a rebuild, and loaded.
func (s *suite) registryWiped(ctx context.Context) error {
	m := s.sampleModule("wiped", "sample")
	key := client.ObjectKeyFromObject(m)
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	available := func(ctx context.Context) error {
		return errors.Join(s.conditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "True", ""), s.ready(ctx, artifacts.Linux61, key, sample))
	}
	if err := s.within(ctx, buildPatience, "the module is loaded", available); err != nil {
		return err
	}
	if err := s.forget(ctx, s.repository(m)); err != nil {
		return err
	}
	base := m.DeepCopy()
	m.Spec.ImageRebuildTriggerGeneration = ptr.To(1)
	if err := s.client.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return err
	}
	if err := s.within(ctx, buildPatience, "the image was made again", func(ctx context.Context) error {
		return errors.Join(s.signedWhole(ctx, s.repository(m), sample), available(ctx))
	}); err != nil {
		return err
	}
	return s.remove(ctx, key, sample)
}
