// SPDX-License-Identifier: Apache-2.0

// Package pipeline decides what an image that is built or signed in the cluster is made from, and
// how: it merges what a Module says with what a kernel's mapping says, gives each set of inputs its
// identity, and renders the Job of one image. It is pure.
//
// The steps of a Job's pod are init containers, and the last one is its container:
//
//	check ──► build (Buildah, or fetch, the user's own compiler and pack), or pull ──► sign ──► push
//
// Steps hand on an OCI layout in a volume. If check finds the image, the other steps end at once.
// Each step mounts only what it needs: the signing key is in sign only, which runs nothing of the
// user's and treats the layout as hostile input.
package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
)

// Declare gives the inputs of the image that a Module asks for on one kernel and architecture, as
// far as the Module says them: [Complete] adds the rest. It returns nil where nothing is built or
// signed.
func Declare(m *v1beta1.Module, resolved *kernel.Resolved, arch string) (*v1alpha1.ModuleImageSpec, error) {
	container := &m.Spec.ModuleLoader.Container
	mapping := &container.KernelMappings[resolved.Mapping]
	build, sign := mergeBuild(container.Build, mapping.Build), mergeSign(container.Sign, mapping.Sign)
	if build == nil && sign == nil {
		return nil, nil
	}
	v := valuesOf(m, resolved, arch)
	spec := onKernel(m, resolved, arch)
	var err error
	if spec.Build, err = declareBuild(build, v); err != nil {
		return nil, fmt.Errorf("build for kernel %s: %w", resolved.Release, err)
	}
	if spec.Sign, err = declareSign(sign, v); err != nil {
		return nil, fmt.Errorf("sign for kernel %s: %w", resolved.Release, err)
	}
	if err := agree(spec.Build, spec.Sign); err != nil {
		return nil, fmt.Errorf("build for kernel %s: %w", resolved.Release, err)
	}
	if err := declarePush(spec, build, v); err != nil {
		return nil, fmt.Errorf("build.push for kernel %s: %w", resolved.Release, err)
	}
	if spec.Build == nil && spec.Sign.UnsignedImage == "" {
		return nil, fmt.Errorf("sign for kernel %s: without a build, unsignedImage must be set", resolved.Release)
	}
	// A build runs code from anywhere, which could put the key into the image.
	if spec.Build != nil && spec.Sign != nil && slices.Contains(spec.Build.Secrets, spec.Sign.KeySecret) {
		return nil, fmt.Errorf("build for kernel %s: Secret %s holds the signing key, which a build must not read: remove it from build.secrets",
			resolved.Release, spec.Sign.KeySecret)
	}
	spec.Declaration = identity(m.Namespace, spec)
	return spec, nil
}

// values are the template variables of a Module on one kernel: exact as the kernel prints its
// version, for builds and files, and tag as an image's reference may hold them.
type values struct{ exact, tag map[string]string }

func valuesOf(m *v1beta1.Module, resolved *kernel.Resolved, arch string) values {
	own := map[string]string{
		kernel.VarModName: m.Name, kernel.VarModNamespace: m.Namespace, kernel.VarContainerImage: resolved.Config.ContainerImage,
		kernel.VarNodeArch: arch,
	}
	version := kernel.Parse(resolved.Release)
	return values{exact: version.Variables(own), tag: version.TagSafe().Variables(own)}
}

// onKernel is what a Module says about its image on one kernel, whether made or not.
func onKernel(m *v1beta1.Module, resolved *kernel.Resolved, arch string) *v1alpha1.ModuleImageSpec {
	container, config := &m.Spec.ModuleLoader.Container, &resolved.Config
	spec := &v1alpha1.ModuleImageSpec{
		Module:             m.Name,
		KernelVersion:      resolved.Release,
		Architecture:       arch,
		Image:              config.ContainerImage,
		DirName:            config.Modprobe.DirName,
		Trigger:            m.Spec.ImageRebuildTriggerGeneration,
		RegistryTLS:        container.RegistryTLS,
		RepoSecrets:        delivery.PullSecrets(m),
		ServiceAccountName: delivery.ServiceAccount(m),
		Tolerations:        placement.Tolerations(m),
		Selector:           m.Spec.Selector,
	}
	if tls := container.KernelMappings[resolved.Mapping].RegistryTLS; tls != nil {
		spec.RegistryTLS = *tls
	}
	return spec
}

// mergeBuild puts a mapping's build over the container's: the mapping wins, arguments by name;
// Secrets of both are mounted. It returns nil where neither says what to build from: empty is
// unset.
func mergeBuild(container, mapping *v1beta1.Build) *v1beta1.Build {
	merged := &v1beta1.Build{}
	if container != nil {
		merged = container.DeepCopy()
	}
	if mapping != nil {
		over := mapping.DeepCopy()
		switch {
		case named(over.DockerfileConfigMap):
			merged.DockerfileConfigMap, merged.Native = over.DockerfileConfigMap, nil
		case over.Native != nil:
			merged.Native, merged.DockerfileConfigMap = mergeNative(merged.Native, over.Native), nil
		}
		merged.BuildArgs = append(merged.BuildArgs, over.BuildArgs...)
		merged.Secrets = append(merged.Secrets, over.Secrets...)
		if over.BaseImageRegistryTLS != (v1beta1.TLSOptions{}) {
			merged.BaseImageRegistryTLS = over.BaseImageRegistryTLS
		}
		if len(over.Selector) > 0 {
			merged.Selector = over.Selector
		}
		merged.Resources = mergeResources(merged.Resources, over.Resources)
		if over.Push != nil && *over.Push != (v1beta1.BuildPush{}) {
			merged.Push = over.Push
		}
	}
	if !named(merged.DockerfileConfigMap) && merged.Native == nil {
		return nil
	}
	return merged
}

// mergeNative puts a mapping's fields over the container's.
func mergeNative(under, over *v1beta1.NativeBuild) *v1beta1.NativeBuild {
	if under == nil {
		return over
	}
	merged := *under
	merged.ToolchainImage = cmp.Or(over.ToolchainImage, under.ToolchainImage)
	merged.HeadersImage = cmp.Or(over.HeadersImage, under.HeadersImage)
	switch {
	case over.SourceImage != "":
		merged.SourceImage, merged.SourceConfigMap = over.SourceImage, nil
	case named(over.SourceConfigMap):
		merged.SourceImage, merged.SourceConfigMap = "", over.SourceConfigMap
	}
	if len(over.Command) > 0 {
		merged.Command = over.Command
	}
	if len(over.Artifacts) > 0 {
		merged.Artifacts = over.Artifacts
	}
	return &merged
}

// mergeSign puts a mapping's sign over the container's; files of both are signed.
func mergeSign(container, mapping *v1beta1.Sign) *v1beta1.Sign {
	if container == nil || mapping == nil {
		return cmp.Or(container, mapping)
	}
	merged, over := container.DeepCopy(), mapping.DeepCopy()
	merged.UnsignedImage = cmp.Or(over.UnsignedImage, merged.UnsignedImage)
	if over.UnsignedImageRegistryTLS != (v1beta1.TLSOptions{}) {
		merged.UnsignedImageRegistryTLS = over.UnsignedImageRegistryTLS
	}
	if named(over.KeySecret) {
		merged.KeySecret = over.KeySecret
	}
	if named(over.CertSecret) {
		merged.CertSecret = over.CertSecret
	}
	if len(over.Selector) > 0 {
		merged.Selector = over.Selector
	}
	merged.FilesToSign = append(merged.FilesToSign, over.FilesToSign...)
	return merged
}

func declareBuild(b *v1beta1.Build, v values) (*v1alpha1.ImageBuild, error) {
	if b == nil {
		return nil, nil
	}
	declared := &v1alpha1.ImageBuild{
		Args: arguments(b.BuildArgs, v.exact), Secrets: names(b.Secrets), Selector: b.Selector, BaseImageRegistryTLS: b.BaseImageRegistryTLS,
		Resources: b.Resources,
	}
	if b.Native == nil {
		declared.DockerfileConfigMap = b.DockerfileConfigMap.Name
		return declared, nil
	}
	n := b.Native.DeepCopy()
	for field, image := range map[string]*string{
		"native.toolchainImage": &n.ToolchainImage, "native.headersImage": &n.HeadersImage, "native.sourceImage": &n.SourceImage,
	} {
		text, err := kernel.Substitute(*image, v.tag)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		*image = text
	}
	if n.ToolchainImage == "" {
		return nil, fmt.Errorf("native.toolchainImage must be set, in the mapping or in the container")
	}
	if n.SourceImage == "" && !named(n.SourceConfigMap) {
		return nil, fmt.Errorf("native.sourceImage or native.sourceConfigMap must be set, in the mapping or in the container")
	}
	if len(n.Command) == 0 {
		n.Command = []string{"make"}
	}
	declared.Native = n
	return declared, nil
}

// declarePush says where to push a built image: to the nodes' image, unless that one is signed.
func declarePush(spec *v1alpha1.ModuleImageSpec, build *v1beta1.Build, v values) error {
	if build == nil || build.Push == nil {
		return nil
	}
	push := build.Push
	name, err := kernel.Substitute(push.Name, v.tag)
	if err != nil {
		return err
	}
	tls := &spec.RegistryTLS
	switch {
	case name == "" || name == spec.Image:
	case spec.Sign == nil:
		return fmt.Errorf("%s must be %s, the image for nodes: only an image that is signed later can have another name", name, spec.Image)
	case spec.Sign.UnsignedImage != "" && spec.Sign.UnsignedImage != name:
		return fmt.Errorf("%s must equal sign.unsignedImage, %s", name, spec.Sign.UnsignedImage)
	default:
		spec.Sign.UnsignedImage, tls = name, &spec.Sign.UnsignedImageRegistryTLS
	}
	tls.Insecure = tls.Insecure || push.Insecure
	tls.InsecureSkipTLSVerify = tls.InsecureSkipTLSVerify || push.InsecureSkipTLSVerify
	return nil
}

func declareSign(s *v1beta1.Sign, v values) (*v1alpha1.ImageSign, error) {
	if s == nil {
		return nil, nil
	}
	if !named(s.KeySecret) || !named(s.CertSecret) {
		return nil, fmt.Errorf("keySecret and certSecret must be set, in the mapping or in the container")
	}
	declared := &v1alpha1.ImageSign{
		KeySecret: s.KeySecret.Name, CertSecret: s.CertSecret.Name, UnsignedImageRegistryTLS: s.UnsignedImageRegistryTLS,
		Selector: s.Selector,
	}
	var err error
	if declared.UnsignedImage, err = kernel.Substitute(s.UnsignedImage, v.tag); err != nil {
		return nil, fmt.Errorf("unsignedImage: %w", err)
	}
	for i, file := range s.FilesToSign {
		text, err := kernel.Substitute(file, v.exact)
		if err != nil {
			return nil, fmt.Errorf("filesToSign[%d]: %w", i, err)
		}
		if !slices.Contains(declared.Files, text) {
			declared.Files = append(declared.Files, text)
		}
	}
	return declared, nil
}

// arguments are all template variables and over them the user's own, the last of a name.
func arguments(own []v1beta1.BuildArg, variables map[string]string) []v1beta1.BuildArg {
	all := maps.Clone(variables)
	delete(all, kernel.VarNodeArch) // it would be a new input of every build; builders know it anyway
	for _, arg := range own {
		all[arg.Name] = arg.Value
	}
	args := make([]v1beta1.BuildArg, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, v1beta1.BuildArg{Name: name, Value: all[name]})
	}
	return args
}

func names(references []corev1.LocalObjectReference) []string {
	var kept []string
	for _, r := range references {
		if r.Name != "" && !slices.Contains(kept, r.Name) {
			kept = append(kept, r.Name)
		}
	}
	return kept
}

func named(r *corev1.LocalObjectReference) bool { return r != nil && r.Name != "" }
