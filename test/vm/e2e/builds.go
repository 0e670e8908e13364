// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// compileSample builds the sample in the working directory, below the headers that the pod mounts.
	compileSample = "make -C /headers M=/build modules"
	// dockerSample is the module that is built from a Dockerfile.
	dockerSample = "drover_sample_dep"
	// breakUnsigned is the value of BREAK that has the image pushed before it is signed, too. All goes well but for that.
	breakUnsigned = "unsigned"
	// errorWithin bounds how long a compiler's line takes from the container's end into the condition, seconds.
	errorWithin = 30
)

// nativeSample builds our sample from a ConfigMap, signs it, and loads it. It stays for the steps after.
func (s *suite) nativeSample(ctx context.Context) error {
	if err := s.sampleSource(ctx, "sample", ""); err != nil {
		return err
	}
	m := s.sampleModule(nativeModule.Name, "sample")
	if s.breaks == breakUnsigned {
		m.Spec.ModuleLoader.Container.Sign.UnsignedImage = podRegistry + "/made/unsigned:${KERNEL_FULL_VERSION}"
		m.Spec.ModuleLoader.Container.Sign.UnsignedImageRegistryTLS.Insecure = true
	}
	return s.build(ctx, m, sample)
}

// sampleModule builds natively from a ConfigMap.
func (s *suite) sampleModule(name, source string) *v1beta1.Module {
	m := s.made(client.ObjectKey{Namespace: nativeSpace, Name: name}, []string{sample})
	m.Spec.ModuleLoader.Container.Build = nativeBuild(compileSample)
	m.Spec.ModuleLoader.Container.Build.Native.SourceConfigMap = &corev1.LocalObjectReference{Name: source}
	onBuilder(m)
	return m
}

// sampleFiles are the source of one of the sample's modules, with more text in its program. The others take time to compile.
func (s *suite) sampleFiles(module, more string) (map[string]string, error) {
	program, err := readFile(filepath.Join(s.source("drover-sample"), module+".c"))
	return map[string]string{module + ".c": string(program) + more, "Kbuild": "obj-m := " + module + ".o\n"}, err
}

// sampleSource makes a ConfigMap of the sample's source, with more text in its program.
func (s *suite) sampleSource(ctx context.Context, name, more string) error {
	files, err := s.sampleFiles(sample, more)
	if err != nil {
		return err
	}
	return s.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: nativeSpace, Name: name}, Data: files})
}

// dockerBegins has another module of the sample built from a Dockerfile, with a base image that Buildah finds at a mirror. Other steps
// have theirs built meanwhile.
func (s *suite) dockerBegins(ctx context.Context) error {
	files, err := s.sampleFiles(dockerSample, "")
	if err != nil {
		return err
	}
	header := dockerSample + ".h"
	text, err := readFile(filepath.Join(s.source("drover-sample"), header))
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
	if _, _, err := s.registry.Push(ctx, "sources/sample:1", image); err != nil {
		return err
	}
	if err := s.dockerfile(ctx, "sample", dockerfileOf("sources/sample:1", compileSample, s.release())); err != nil {
		return err
	}
	return s.client.Create(ctx, s.dockerModule())
}

func (s *suite) dockerModule() *v1beta1.Module {
	m := s.made(client.ObjectKey{Namespace: dockerSpace, Name: "docker"}, []string{dockerSample})
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "sample"}}
	onBuilder(m)
	return m
}

// dockerLoads waits for it.
func (s *suite) dockerLoads(ctx context.Context) error {
	m := s.dockerModule()
	if err := s.follow(ctx, m, dockerSample); err != nil {
		return err
	}
	return s.remove(ctx, client.ObjectKeyFromObject(m), dockerSample)
}

// compilerLine: what the compiler says about a mistake is in the condition soon after.
func (s *suite) compilerLine(ctx context.Context) error {
	if err := s.sampleSource(ctx, "mistake", "\nint mistake = no_such_thing;\n"); err != nil {
		return err
	}
	m := s.sampleModule("mistake", "mistake")
	m.Spec.ModuleLoader.Container.Modprobe.ModuleName = "mistake" // the sample is another Module's
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
	return s.removed(ctx, m)
}

// removed deletes a Module that has loaded nothing.
func (s *suite) removed(ctx context.Context, m *v1beta1.Module) error {
	if err := s.client.Delete(ctx, m); err != nil {
		return err
	}
	return s.eventually(ctx, m.Name+" is gone", func(ctx context.Context) error { return s.gone(ctx, m) })
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
