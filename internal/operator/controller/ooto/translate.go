// SPDX-License-Identifier: Apache-2.0

package ooto

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "drover"

	// dockerfileKey is the key of a Dockerfile in its ConfigMap, as KMM has it.
	dockerfileKey = "dockerfile"
	hashDigits    = 16
	maxName       = 253
)

type translation struct {
	module *v1beta1.Module
	// dockerfiles are one ConfigMap for each Dockerfile that a mapping builds from.
	dockerfiles []*corev1.ConfigMap
	ignored     []string // the fields that are set and have no meaning here
}

// translate is pure, and shares nothing of m.
func translate(m *v1alpha1.Module) (*translation, error) {
	m = m.DeepCopy()
	t := &translation{ignored: ignored(m)}
	t.module = &v1beta1.Module{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "Module"},
		ObjectMeta: objectMeta(m, m.Name),
		Spec: v1beta1.ModuleSpec{
			Selector:         m.Spec.Selector,
			DevicePlugin:     devicePlugin(m.Spec.DevicePlugin),
			ImageRepoSecrets: repoSecrets(&m.Spec.DriverContainer),
			ModuleLoader: &v1beta1.ModuleLoaderSpec{
				ServiceAccountName: m.Spec.DriverContainer.ServiceAccountName,
				Container:          t.container(m),
			},
		},
	}
	if t.module.Spec.Selector == nil {
		t.module.Spec.Selector = map[string]string{}
	}
	hash, err := kube.Hash(t.module.Spec)
	if err != nil {
		return nil, err
	}
	t.module.Annotations = map[string]string{kube.HashAnnotation: hash}
	return t, nil
}

func objectMeta(m *v1alpha1.Module, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name, Labels: map[string]string{partOfLabel: partOf},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind("Module"))},
	}
}

// ignored are fields of a driver pod, which does not exist here. Empty is unset.
func ignored(m *v1alpha1.Module) []string {
	var paths []string
	driver := &m.Spec.DriverContainer
	if driver.Container.SecurityContext != nil {
		paths = append(paths, "spec.driverContainer.container.securityContext")
	}
	if len(driver.Container.VolumeMounts) > 0 {
		paths = append(paths, "spec.driverContainer.container.volumeMounts")
	}
	if len(driver.Volumes) > 0 {
		paths = append(paths, "spec.driverContainer.volumes")
	}
	return paths
}

func devicePlugin(p *v1alpha1.DevicePluginSpec) *v1beta1.DevicePluginSpec {
	if p == nil {
		return nil
	}
	c := p.Container
	return &v1beta1.DevicePluginSpec{
		Container: v1beta1.WorkloadContainer{
			Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Command: c.Command, Args: c.Args, Env: c.Env,
			Resources: c.Resources, SecurityContext: c.SecurityContext, VolumeMounts: c.VolumeMounts,
		},
		ImagePullSecrets: p.ImagePullSecrets, ServiceAccountName: p.ServiceAccountName, Volumes: p.Volumes,
	}
}

// repoSecrets are all registry Secrets, those for one image first: the first that fits is used.
func repoSecrets(d *v1alpha1.DriverContainerSpec) []corev1.LocalObjectReference {
	var all []corev1.LocalObjectReference
	add := func(name string) {
		if secret := (corev1.LocalObjectReference{Name: name}); name != "" && !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	for _, mapping := range d.Container.KernelMappings {
		if s := mapping.Sign; s != nil && s.SignedImage != nil && s.SignedImage.PushSecretRef != nil {
			add(s.SignedImage.PushSecretRef.Name)
		}
	}
	for _, secret := range d.ImageRepoSecrets {
		add(secret.Name)
	}
	return all
}

func (t *translation) container(m *v1alpha1.Module) v1beta1.ModuleLoaderContainerSpec {
	from := &m.Spec.DriverContainer.Container
	modprobe := ptr.Deref(from.Modprobe, v1alpha1.Modprobe{})
	to := v1beta1.ModuleLoaderContainerSpec{
		ContainerImage: from.ContainerImage,
		Modprobe: v1beta1.ModprobeSpec{
			ModuleName: cmp.Or(modprobe.ModuleName, strings.ReplaceAll(m.Name, "-", "_")),
			Parameters: modprobe.Parameters,
			DirName:    modprobe.DirName,
		},
	}
	for i := range from.KernelMappings {
		to.KernelMappings = append(to.KernelMappings, t.mapping(m, &from.KernelMappings[i]))
	}
	return to
}

// mapping holds its whole build: one in the KMM Module's container would make every mapping build.
func (t *translation) mapping(m *v1alpha1.Module, from *v1alpha1.KernelMapping) v1beta1.KernelMapping {
	common := &m.Spec.DriverContainer.Container
	to := v1beta1.KernelMapping{Literal: from.Literal, Regexp: from.Regexp, ContainerImage: from.ContainerImage}
	image := cmp.Or(from.ContainerImage, common.ContainerImage)
	if from.Build != nil {
		to.Build = t.build(m, mergeBuild(common.Build, from.Build), image)
	}
	if s := from.Sign; s != nil {
		to.Sign = &v1beta1.Sign{
			KeySecret: &corev1.LocalObjectReference{Name: s.KeySecret.Name}, CertSecret: &corev1.LocalObjectReference{Name: s.CertSecret.Name},
			FilesToSign: s.FilesToSign,
		}
		if s.UnsignedImage != nil {
			to.Sign.UnsignedImage = named(s.UnsignedImage.Name, image)
		}
		// KMM signs into the image that nodes get.
		if s.SignedImage != nil {
			if signed := named(s.SignedImage.Name, image); signed != "" && signed != image {
				to.ContainerImage = signed
			}
		}
	}
	return to
}

// mergeBuild puts a mapping's settings over the container's: arguments by name, the rest as a
// whole.
func mergeBuild(common, own *v1alpha1.Build) *v1alpha1.Build {
	if common == nil {
		return own
	}
	args := slices.Clone(common.BuildArgs)
	for _, arg := range own.BuildArgs {
		if i := slices.IndexFunc(args, func(a v1alpha1.BuildArg) bool { return a.Name == arg.Name }); i >= 0 {
			args[i] = arg
		} else {
			args = append(args, arg)
		}
	}
	return &v1alpha1.Build{
		BuildArgs: args, Dockerfile: cmp.Or(own.Dockerfile, common.Dockerfile), Pull: cmp.Or(own.Pull, common.Pull),
		Push: cmp.Or(own.Push, common.Push),
	}
}

func (t *translation) build(m *v1alpha1.Module, from *v1alpha1.Build, image string) *v1beta1.Build {
	to := &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: t.dockerfile(m, from.Dockerfile)}}
	for _, arg := range from.BuildArgs {
		to.BuildArgs = append(to.BuildArgs, v1beta1.BuildArg{Name: arg.Name, Value: arg.Value})
	}
	if from.Pull != nil {
		to.BaseImageRegistryTLS.Insecure = from.Pull.Insecure
	}
	if from.Push != nil {
		to.Push = &v1beta1.BuildPush{Name: named(from.Push.Name, image), TLSOptions: v1beta1.TLSOptions{Insecure: from.Push.Insecure}}
	}
	return to
}

// dockerfile is the name of the ConfigMap that holds a text. It depends on the text, so that
// another text gives nodes another image.
func (t *translation) dockerfile(m *v1alpha1.Module, text string) string {
	suffix := "-dockerfile-" + kube.Digest(text, hashDigits)
	config := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: objectMeta(m, m.Name[:min(len(m.Name), maxName-len(suffix))]+suffix),
		Immutable:  ptr.To(true),
		Data:       map[string]string{dockerfileKey: text},
	}
	if !slices.ContainsFunc(t.dockerfiles, func(c *corev1.ConfigMap) bool { return c.Name == config.Name }) {
		t.dockerfiles = append(t.dockerfiles, config)
	}
	return config.Name
}

var containerImage = regexp.MustCompile(`\$\{CONTAINER_IMAGE\}|\$CONTAINER_IMAGE\b`)

// named puts the mapping's image in place of a reference to it.
func named(name, image string) string { return containerImage.ReplaceAllLiteralString(name, image) }

// statusOf is what was seen. child is the KMM Module, if it has what is asked for. The status
// before only gives the transition times.
func statusOf(m *v1alpha1.Module, child *v1beta1.Module, ignored []string, p *reasons.Problem, now time.Time) *v1alpha1.ModuleStatus {
	s := &v1alpha1.ModuleStatus{ObservedGeneration: m.Generation, DriverContainer: &v1alpha1.NodeCounts{}}
	if m.Spec.DevicePlugin != nil {
		s.DevicePlugin = &v1alpha1.NodeCounts{}
	}
	if child != nil {
		*s.DriverContainer = counts(child.Status.ModuleLoader)
		if s.DevicePlugin != nil {
			*s.DevicePlugin = counts(child.Status.DevicePlugin)
		}
	}
	s.Conditions = []metav1.Condition{ready(child, p), translated(m, p), allUsed(ignored)}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = m.Generation, metav1.NewTime(now.Truncate(time.Second))
		if before := meta.FindStatusCondition(m.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return s
}

func counts(s v1beta1.DaemonSetStatus) v1alpha1.NodeCounts {
	return v1alpha1.NodeCounts{DesiredNumberScheduled: s.DesiredNumber, NumberReady: s.AvailableNumber, NumberAvailable: s.AvailableNumber}
}

// ready is the KMM Module's condition, once that is about what is asked for now.
func ready(child *v1beta1.Module, p *reasons.Problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoStatus}
	switch {
	case p != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.Reason, p.Message
		return c
	case child == nil || child.Status.ObservedGeneration != child.Generation:
	default:
		if of := meta.FindStatusCondition(child.Status.Conditions, v1beta1.ConditionReady); of != nil {
			c.Status, c.Reason, c.Message = of.Status, of.Reason, of.Message
			return c
		}
	}
	c.Message = "The operator has not processed the Module of " + v1beta1.GroupVersion.Group + " yet"
	return c
}

func translated(m *v1alpha1.Module, p *reasons.Problem) metav1.Condition {
	if p != nil {
		return metav1.Condition{Type: v1alpha1.ConditionTranslated, Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionTranslated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTranslated,
		Message: fmt.Sprintf("The Module %s of %s matches this one", m.Name, v1beta1.GroupVersion.Group),
	}
}

func allUsed(ignored []string) metav1.Condition {
	if len(ignored) > 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionAllFieldsUsed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFieldIgnored,
			Message: "There is no driver pod, so Drover ignores " + strings.Join(ignored, ", "),
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionAllFieldsUsed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllFieldsUsed,
		Message: "Drover uses every field that is set",
	}
}
