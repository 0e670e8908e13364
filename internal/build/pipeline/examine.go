// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// WantedByPreflight is how a PreflightValidation says, in spec.wantedBy, that it wants an image.
func WantedByPreflight(name string) string { return "PreflightValidation/" + name }

// Trial is the image of completed inputs, made only to be examined: it is not pushed.
func Trial(spec *v1alpha1.ModuleImageSpec, config *v1beta1.ModuleConfig) *v1alpha1.ModuleImageSpec {
	trial := spec.DeepCopy()
	trial.Examine = examined(config)
	return trial
}

// Examination is an image in its registry, to be examined. reference is its name there.
func Examination(m *v1beta1.Module, resolved *kernel.Resolved, arch, reference string) *v1alpha1.ModuleImageSpec {
	spec := onKernel(m, resolved, arch)
	spec.Image, spec.Examine = reference, examined(&resolved.Config)
	spec.Examine.Generation = m.Generation
	spec.Declaration = identity(m.Namespace, spec)
	spec.Hash = spec.Declaration
	return spec
}

func examined(config *v1beta1.ModuleConfig) *v1alpha1.ImageExamine {
	e := &v1alpha1.ImageExamine{LoadOrder: config.Modprobe.ModulesLoadingOrder, FirmwarePath: config.Modprobe.FirmwarePath}
	if config.Modprobe.ModuleName != "" {
		e.Modules = []string{config.Modprobe.ModuleName}
	}
	return e
}

// made reports whether the Job makes an image, rather than only examine one.
func made(spec *v1alpha1.ModuleImageSpec) bool { return spec.Build != nil || spec.Sign != nil }

// MadeForTrial reports whether the image is made and not pushed.
func MadeForTrial(spec *v1alpha1.ModuleImageSpec) bool { return spec.Examine != nil && made(spec) }

// OnlyExamined reports whether the image is a registry's, to be examined: nothing is made.
func OnlyExamined(spec *v1alpha1.ModuleImageSpec) bool { return spec.Examine != nil && !made(spec) }

// examine is the last step of a Job that examines the layout's image, or else the registry's.
func examine(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args, mounts := registry(spec, o, spec.Image, spec.RegistryTLS)
	args = append(args, "--kernel", spec.KernelVersion, "--arch", spec.Architecture, "--dir-name", path.Join("/", spec.DirName))
	args = append(args, repeated("--module", spec.Examine.Modules)...)
	args = append(args, repeated("--load-order", spec.Examine.LoadOrder)...)
	if spec.Examine.FirmwarePath != "" {
		args = append(args, "--firmware-path", spec.Examine.FirmwarePath)
	}
	if made(spec) {
		args, mounts = append(args, "--layout", layoutDir), append(mounts, mount("layout", layoutDir, true))
	}
	return step(o, StepExamine, args, mounts...)
}

// unfit is the reason of an image that failed the examination.
func unfit(r *result.Result) string {
	switch {
	case r == nil:
	case r.Unfit != "":
		return r.Unfit
	case r.Reason == result.ReasonNotFound:
		return v1beta1.ReasonImageNotFound
	case r.Reason == result.ReasonUnauthorized:
		return v1beta1.ReasonPullUnauthorized
	case r.Reason == result.ReasonImageRefused:
		return v1beta1.ReasonImageUnreadable
	}
	return v1beta1.ReasonCheckFailed
}
