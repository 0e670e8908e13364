// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/words"
)

// world is what else a decision about a Module needs.
type world struct {
	images       map[types.NamespacedName]*v1alpha1.ModuleImage
	sources      map[string]*corev1.ConfigMap
	buildahImage string
	// examines: images in registries can be examined; makes: others can be made.
	examines, makes bool
}

// finding is the answer for one Module, and the images that it needs.
type finding struct {
	module          types.NamespacedName
	image           string
	status          v1beta2.VerificationStatus
	reason, message string
	wants           map[types.NamespacedName]*v1alpha1.ModuleImageSpec
}

// concerned reports whether a Module selects a node with the preflight's labels, if it has any.
func concerned(p *v1beta2.PreflightValidation, m *v1beta1.Module) bool {
	return len(p.Spec.Labels) == 0 || placement.Selects(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: p.Spec.Labels}})
}

// spelled are the architectures that kernel versions end with, and how Go and images spell them.
var spelled = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64",
	"loongarch64": "loong64", "loong64": "loong64",
}

// architectures are those that a Module has to be ready for: that of the labels, the Module's
// selector or the kernel's name, or else those of the nodes that the Module selects, or else amd64.
func architectures(p *v1beta2.PreflightValidation, m *v1beta1.Module, nodes []corev1.Node) []string {
	for _, labels := range []map[string]string{p.Spec.Labels, m.Spec.Selector} {
		if arch := labels[corev1.LabelArchStable]; arch != "" {
			return []string{arch}
		}
	}
	version := kernel.Trim(p.Spec.KernelVersion)
	if arch := spelled[version[strings.LastIndexAny(version, ".-+")+1:]]; arch != "" {
		return []string{arch}
	}
	found := map[string]bool{}
	for i := range nodes {
		p, err := kernel.PlatformOf(&nodes[i].Status.NodeInfo)
		if err == nil && p.Architecture != "" && placement.Selects(m, &nodes[i]) && placement.AgentExpected(&nodes[i]) {
			found[p.Architecture] = true
		}
	}
	if len(found) == 0 {
		return []string{"amd64"}
	}
	return slices.Sorted(maps.Keys(found))
}

// examine decides about one Module, as for a node that runs the kernel.
func examine(p *v1beta2.PreflightValidation, m *v1beta1.Module, architectures []string, w *world) finding {
	f := finding{
		module: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, status: v1beta2.VerificationSuccess,
		wants: map[types.NamespacedName]*v1alpha1.ModuleImageSpec{},
	}
	if m.Spec.ModuleLoader == nil {
		f.message = "the Module loads no kernel module"
		return f
	}
	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	if err != nil {
		return f.fails(v1beta1.ReasonNoKernelMapping, err.Error())
	}
	for _, arch := range architectures {
		resolved, mapped, err := mapper.For(p.Spec.KernelVersion, arch)
		switch {
		case err != nil:
			return f.fails(kernel.Reason(err), err.Error())
		case !mapped:
			return f.fails(v1beta1.ReasonNoKernelMapping,
				fmt.Sprintf("none of the %d kernelMappings matches kernel %s", len(m.Spec.ModuleLoader.Container.KernelMappings),
					kernel.Trim(p.Spec.KernelVersion)))
		case !w.examines:
			return f.fails(v1beta1.ReasonCheckFailed, "the operator cannot examine images: set its flag --examiner-image, and enable its "+
				"controller image")
		}
		f.image = cmp.Or(f.image, resolved.Config.ContainerImage)
		one := w.ofArchitecture(p, m, &resolved, arch)
		maps.Copy(f.wants, one.wants)
		if len(architectures) > 1 {
			one.message = arch + ": " + one.message
		}
		if rank(one.status) > rank(f.status) || f.message == "" {
			f.status, f.reason, f.message = one.status, one.reason, one.message
		}
	}
	return f
}

// rank orders statuses from the best to the worst.
func rank(s v1beta2.VerificationStatus) int {
	return slices.Index([]v1beta2.VerificationStatus{v1beta2.VerificationSuccess, v1beta2.VerificationInProgress, v1beta2.VerificationFailure},
		s)
}

func (f finding) fails(reason, message string) finding {
	f.status, f.reason, f.message = v1beta2.VerificationFailure, reason, message
	return f
}

// ofArchitecture decides which images to want, and judges the last of them.
func (w *world) ofArchitecture(p *v1beta2.PreflightValidation, m *v1beta1.Module, resolved *kernel.Resolved, arch string) finding {
	f := finding{wants: map[types.NamespacedName]*v1alpha1.ModuleImageSpec{}}
	want := func(spec *v1alpha1.ModuleImageSpec) *v1alpha1.ModuleImage {
		pipeline.Want(spec, pipeline.WantedByPreflight(p.Name), placement.RetryAsked(m))
		key := types.NamespacedName{Namespace: m.Namespace, Name: pipeline.Name(spec)}
		f.wants[key] = spec
		return w.images[key]
	}
	made, err := pipeline.Declare(m, resolved, arch)
	switch {
	case err != nil:
	case made == nil:
		return f.stands(want(pipeline.Examination(m, resolved, arch, resolved.Config.ContainerImage)))
	case !w.makes:
		return f.stands(want(pipeline.Examination(m, resolved, arch, resolved.Config.ContainerImage))).unmade()
	}
	if err == nil {
		err = pipeline.Complete(m.Namespace, made, w.sources[pipeline.Source(made)], w.buildahImage)
	}
	if err != nil {
		return f.fails(v1beta1.ReasonBuildInputMissing, err.Error())
	}
	pushed := w.images[types.NamespacedName{Namespace: m.Namespace, Name: pipeline.Name(made)}]
	trial := pipeline.Trial(made, &resolved.Config)
	tried := w.images[types.NamespacedName{Namespace: m.Namespace, Name: pipeline.Name(trial)}]
	switch {
	case p.Spec.PushBuiltImage:
		if pushed = want(made); !available(pushed) {
			return f.stands(pushed)
		}
	case !available(pushed) || available(tried):
		return f.stands(want(trial))
	}
	return f.stands(want(pipeline.Examination(m, resolved, arch, pushed.Status.Image)))
}

func available(image *v1alpha1.ModuleImage) bool {
	return image != nil && meta.IsStatusConditionTrue(image.Status.Conditions, v1alpha1.ConditionAvailable) &&
		(image.Status.Image != "" || pipeline.MadeForTrial(&image.Spec))
}

// passing are the reasons of failures that may be over at the next try: they are no answer until
// several tries have failed.
var passing = []string{v1beta1.ReasonCheckFailed, v1beta1.ReasonPushFailed}

// stands judges an image; nil is one without a ModuleImage yet.
func (f finding) stands(image *v1alpha1.ModuleImage) finding {
	const waits = "the image is about to be examined"
	f.status, f.reason, f.message = v1beta2.VerificationInProgress, v1beta1.ReasonBuilding, waits
	if image == nil {
		return f
	}
	c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil {
		return f
	}
	f.reason, f.message = c.Reason, c.Message
	switch {
	case available(image):
		f.status, f.reason = v1beta2.VerificationSuccess, ""
		if pipeline.MadeForTrial(&image.Spec) && image.Status.Image == "" {
			f.message += "; the image was made for this check and not pushed"
		}
	case c.Status == metav1.ConditionTrue:
		f.reason, f.message = v1beta1.ReasonBuilding, waits
	case meta.IsStatusConditionTrue(image.Status.Conditions, v1alpha1.ConditionStalled),
		image.Status.Failures > 0 && !slices.Contains(passing, c.Reason), image.Status.Failures >= pipeline.FailureLimit:
		f.status = v1beta2.VerificationFailure
	}
	return f
}

// unmade says that nobody makes an image that is missing. One that is there is what nodes pull.
func (f finding) unmade() finding {
	if f.status == v1beta2.VerificationFailure && f.reason == v1beta1.ReasonImageNotFound {
		f.message += "; the Module asks for a build or a signature, but this operator makes no images: run it with --signer-image"
	}
	return f
}

// named is how many Modules a condition names; the rest is counted.
const named = 5

// statusOf is the status of all findings. Of the status before, only times count.
func statusOf(p *v1beta2.PreflightValidation, found []finding, now time.Time) *v1beta2.PreflightValidationStatus {
	now = now.Truncate(time.Second)
	s := &v1beta2.PreflightValidationStatus{ObservedGeneration: p.Generation}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.module.String(), b.module.String()) })
	for i := range found {
		f := &found[i]
		one := v1beta2.CRStatus{
			VerificationStatus: f.status, StatusReason: f.message, VerificationStage: v1beta2.StageDone, LastTransitionTime: metav1.NewTime(now),
		}
		if f.status == v1beta2.VerificationInProgress {
			one.VerificationStage = v1beta2.StageImage
		}
		for _, before := range p.Status.Modules {
			if before.Namespace == f.module.Namespace && before.Name == f.module.Name && before.VerificationStatus == f.status {
				one.LastTransitionTime = before.LastTransitionTime
			}
		}
		s.Modules = append(s.Modules, v1beta2.PreflightValidationModuleStatus{
			CRStatus: one, Namespace: f.module.Namespace, Name: f.module.Name, Reason: f.reason, Image: f.image,
		})
		if s.CRStatuses == nil {
			s.CRStatuses = map[string]v1beta2.CRStatus{}
		}
		s.CRStatuses[f.module.String()] = one
		// Clients of v1beta1 also look up Modules by name alone: the worst of that name counts.
		if other, ok := s.CRStatuses[f.module.Name]; !ok || rank(one.VerificationStatus) > rank(other.VerificationStatus) {
			s.CRStatuses[f.module.Name] = one
		}
	}
	c := ready(p, found)
	c.Type, c.ObservedGeneration, c.LastTransitionTime = v1beta1.ConditionReady, p.Generation, metav1.NewTime(now)
	if before := meta.FindStatusCondition(p.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	s.Conditions = []metav1.Condition{c}
	return s
}

// ready sums up. A failure counts at once, whether or not other Modules are still being checked.
func ready(p *v1beta2.PreflightValidation, found []finding) metav1.Condition {
	of := map[v1beta2.VerificationStatus][]string{}
	for i := range found {
		f := &found[i]
		text := f.module.String()
		if f.reason != "" {
			text += " (" + f.reason + ")"
		}
		of[f.status] = append(of[f.status], text)
	}
	version := kernel.Trim(p.Spec.KernelVersion)
	failed, busy := of[v1beta2.VerificationFailure], of[v1beta2.VerificationInProgress]
	c := metav1.Condition{Status: metav1.ConditionFalse}
	switch {
	case len(failed) > 0:
		c.Reason = v1beta1.ReasonPreflightFailed
		c.Message = fmt.Sprintf("%d of %d Modules are not ready for kernel %s: %s", len(failed), len(found), version, words.List(failed, named))
		if len(busy) > 0 {
			c.Message += fmt.Sprintf("; %d still being checked", len(busy))
		}
	case len(busy) > 0:
		c.Reason = v1beta1.ReasonPreflightRunning
		c.Message = fmt.Sprintf("%d of %d Modules are still being checked for kernel %s: %s", len(busy), len(found), version,
			words.List(busy, named))
	case len(found) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonKernelReady, "No Module selects a node with these labels"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonKernelReady
		c.Message = fmt.Sprintf("All %d Modules are ready for kernel %s", len(found), version)
	}
	return c
}
