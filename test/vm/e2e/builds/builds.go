// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// CompileSample builds the sample in the working directory, below the headers that the pod mounts.
	CompileSample = "make -C /headers M=/build modules"
	// dockerSample is the module that is built from a Dockerfile.
	dockerSample = "drover_sample_dep"
	// errorWithin bounds how long a compiler's line takes from the container's end into the condition,
	// seconds.
	errorWithin = 30
)

// nativeSample builds our sample from a ConfigMap, signs it, and loads it. It stays for the steps
// after.
func (s *Steps) nativeSample(ctx context.Context) error {
	if err := s.sampleSource(ctx, "sample", ""); err != nil {
		return err
	}
	m := s.sampleModule(nativeModule.Name, "sample")
	if s.Breaks == suite.BreakUnsigned {
		m.Spec.ModuleLoader.Container.Sign.UnsignedImage = PodRegistry + "/made/unsigned:${KERNEL_FULL_VERSION}"
		m.Spec.ModuleLoader.Container.Sign.UnsignedImageRegistryTLS.Insecure = true
	}
	return s.build(ctx, m, loads.Sample)
}

// sampleModule builds natively from a ConfigMap.
func (s *Steps) sampleModule(name, source string) *v1beta1.Module {
	m := s.made(client.ObjectKey{Namespace: nativeSpace, Name: name}, []string{loads.Sample})
	m.Spec.ModuleLoader.Container.Build = NativeBuild(CompileSample)
	m.Spec.ModuleLoader.Container.Build.Native.SourceConfigMap = &corev1.LocalObjectReference{Name: source}
	onBuilder(m)
	return m
}

// SampleFiles are the source of one of the sample's modules, with more text in its program. The
// others take time to compile.
func (s *Steps) SampleFiles(module, more string) (map[string]string, error) {
	program, err := os.ReadFile(filepath.Join(s.Source("drover-sample"), module+".c"))
	return map[string]string{module + ".c": string(program) + more, "Kbuild": "obj-m := " + module + ".o\n"}, err
}

// sampleSource makes a ConfigMap of the sample's source, with more text in its program.
func (s *Steps) sampleSource(ctx context.Context, name, more string) error {
	files, err := s.SampleFiles(loads.Sample, more)
	if err != nil {
		return err
	}
	return s.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: nativeSpace, Name: name}, Data: files})
}

// dockerBegins has another module of the sample built from a Dockerfile, with a base image that
// Buildah finds at a mirror. Other steps have theirs built meanwhile.
func (s *Steps) dockerBegins(ctx context.Context) error {
	files, err := s.SampleFiles(dockerSample, "")
	if err != nil {
		return err
	}
	header := dockerSample + ".h"
	text, err := os.ReadFile(filepath.Join(s.Source("drover-sample"), header))
	if err != nil {
		return err
	}
	files[header] = string(text)
	source := registry.Spec{Files: map[string]registry.File{}}
	for name, text := range files {
		source.Files["/"+name] = registry.File{Content: []byte(text)}
	}
	image, err := registry.Image(source)
	if err != nil {
		return err
	}
	if _, _, err := s.Registry.Push(ctx, "sources/sample:1", image); err != nil {
		return err
	}
	if err := s.dockerfile(ctx, "sample", dockerfileOf("sources/sample:1", CompileSample, s.Release())); err != nil {
		return err
	}
	return s.Client.Create(ctx, s.dockerModule())
}

func (s *Steps) dockerModule() *v1beta1.Module {
	m := s.made(client.ObjectKey{Namespace: dockerSpace, Name: "docker"}, []string{dockerSample})
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "sample"}}
	onBuilder(m)
	return m
}

// dockerLoads waits for it.
func (s *Steps) dockerLoads(ctx context.Context) error {
	m := s.dockerModule()
	if err := s.follow(ctx, m, dockerSample); err != nil {
		return err
	}
	return s.Remove(ctx, client.ObjectKeyFromObject(m), dockerSample)
}

// compilerLine: what the compiler says about a mistake is in the condition soon after.
func (s *Steps) compilerLine(ctx context.Context) error {
	if err := s.sampleSource(ctx, "mistake", "\nint mistake = no_such_thing;\n"); err != nil {
		return err
	}
	m := s.sampleModule("mistake", "mistake")
	m.Spec.ModuleLoader.Container.Modprobe.ModuleName = "mistake" // the sample is another Module's
	key := client.ObjectKeyFromObject(m)
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	err := s.Within(ctx, BuildPatience, "the condition quotes the compiler", func(ctx context.Context) error {
		if err := s.ConditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "False", v1beta1.ReasonBuildFailed); err != nil {
			return err
		}
		now := &v1beta1.Module{}
		if err := s.Client.Get(ctx, key, now); err != nil {
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
	s.Figures["errorLineSeconds"] = seen.Sub(ended).Round(time.Second).Seconds()
	if s.Figures["errorLineSeconds"] > errorWithin {
		return fmt.Errorf("the line took %.0f s", s.Figures["errorLineSeconds"])
	}
	return s.removed(ctx, m)
}

// removed deletes a Module that has loaded nothing.
func (s *Steps) removed(ctx context.Context, m *v1beta1.Module) error {
	if err := s.Client.Delete(ctx, m); err != nil {
		return err
	}
	return s.Eventually(ctx, m.Name+" is gone", func(ctx context.Context) error { return s.Gone(ctx, m) })
}

// buildEnded is when a Module's first build ended.
func (s *Steps) buildEnded(ctx context.Context, space, module string) (time.Time, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(space), client.MatchingLabels{v1beta1.ModuleNameLabel: module},
		client.HasLabels{v1alpha1.ImageLabel})
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
