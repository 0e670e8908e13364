// SPDX-License-Identifier: Apache-2.0

package modulepolicy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Fields of a Module that belong to no node. A policy's nodeSelector does not narrow what it says
// of them.
const (
	fieldTaint   = "spec.startupTaint"
	fieldPlugin  = "spec.devicePlugin"
	fieldDRA     = "spec.dra"
	fieldDriver  = fieldDRA + ".driverName"
	fieldClasses = fieldDRA + ".deviceClasses"
)

// DeniedTaint is why a policy of that mode does not allow a Module's startup taint, or nil. Keys of
// the Module's own namespace are always allowed.
func (s Set) DeniedTaint(mode v1alpha1.ModulePolicyMode, m *v1beta1.Module, namespace map[string]string) *reasons.Problem {
	return s.first(mode, &Place{Name: m.Namespace, Namespace: namespace}, inTheWhole, taintRule(m))
}

func taintRule(m *v1beta1.Module) rule {
	return func(p *v1alpha1.ModulePolicy) []string {
		key := m.Spec.StartupTaint
		if key == "" || strings.HasPrefix(key, m.Namespace+OwnTaints) {
			return nil
		}
		if _, ok := stranger(listed(p.Spec.StartupTaints), []string{key}, nil); !ok {
			return []string{says(p, fieldTaint, "does not allow the taint %s", key)}
		}
		return nil
	}
}

// DeniedWorkload is why a policy of that mode does not allow a Module's device plugin or DRA
// driver, or what the operator makes for it, or nil.
func (s Set) DeniedWorkload(mode v1alpha1.ModulePolicyMode, m *v1beta1.Module, namespace map[string]string) *reasons.Problem {
	return s.first(mode, &Place{Name: m.Namespace, Namespace: namespace}, inTheWhole, workloadOf(&m.Spec).denied)
}

// Whole are the reasons for which policies of that mode do not allow what of a Module belongs to no
// node: its startup taint, its device plugin or DRA driver.
func (s Set) Whole(mode v1alpha1.ModulePolicyMode, m *v1beta1.Module, namespace map[string]string) []string {
	at := &Place{Name: m.Namespace, Namespace: namespace}
	return append(s.all(mode, at, inTheWhole, taintRule(m)), s.all(mode, at, inTheWhole, workloadOf(&m.Spec).denied)...)
}

// OnNode are the reasons for which policies of that mode do not allow the wish on a node.
func (s Set) OnNode(mode v1alpha1.ModulePolicyMode, w *Wish, at *Place) []string {
	return s.all(mode, at, onNode, w.rule(at))
}

// Priority is the priority class of the pods of a Module's device plugin or DRA driver: the given
// one where no policy is enforced, else the one that all policies name. Empty: the cluster's
// default.
func (s Set) Priority(class string, namespace map[string]string) string {
	var named []string
	s.all(v1alpha1.PolicyEnforce, &Place{Namespace: namespace}, inTheWhole, func(p *v1alpha1.ModulePolicy) []string {
		if w := p.Spec.Workloads; w != nil {
			named = append(named, w.PriorityClassName)
		} else {
			named = append(named, "")
		}
		return nil
	})
	switch one := slices.Compact(named); len(one) {
	case 0:
		return class
	case 1:
		return one[0]
	}
	return ""
}

// listed are a policy's patterns, of which none allows nothing.
func listed(patterns []string) []string {
	if patterns == nil {
		return []string{}
	}
	return patterns
}

// workload is what ModulePolicies say something of.
type workload struct {
	field, kind string
	containers  []*v1beta1.WorkloadContainer
	volumes     []corev1.Volume
	hostNetwork bool
	dra         *v1beta1.DRASpec
}

func workloadOf(s *v1beta1.ModuleSpec) *workload {
	switch {
	case s.DevicePlugin != nil:
		d := s.DevicePlugin
		return &workload{field: fieldPlugin, kind: "device plugin", containers: containers(&d.Container, d.InitContainer), volumes: d.Volumes}
	case s.DRA != nil:
		d := s.DRA
		return &workload{field: fieldDRA, kind: "DRA driver", containers: containers(&d.Container, d.InitContainer), volumes: d.Volumes,
			hostNetwork: d.HostNetwork, dra: d}
	}
	return nil
}

func containers(main, init *v1beta1.WorkloadContainer) []*v1beta1.WorkloadContainer {
	if init == nil {
		return []*v1beta1.WorkloadContainer{main}
	}
	return []*v1beta1.WorkloadContainer{main, init}
}

// denied are the reasons for which a policy does not allow the workload; nil has none.
func (w *workload) denied(p *v1alpha1.ModulePolicy) (why []string) {
	if w == nil {
		return nil
	}
	says := func(field, format string, args ...any) { why = append(why, says(p, field, format, args...)) }
	if p.Spec.Workloads == nil {
		says(w.field, "allows no %s", w.kind)
		return why
	}
	images := make([]string, len(w.containers))
	for i, c := range w.containers {
		images[i] = c.Image
	}
	if image, ok := stranger(p.Spec.Workloads.Images, images, nil); !ok {
		says(w.field, "does not allow the image %s", image)
	}
	if p.Spec.Workloads.Privileged != v1alpha1.Allow && w.privileged() {
		says(w.field, "allows no privileged pods: each container needs a securityContext without privileges, and the pod no hostPath and no "+
			"hostNetwork")
	}
	if w.dra == nil {
		return why
	}
	if name, ok := stranger(listed(p.Spec.DriverNames), []string{w.dra.DriverName}, nil); !ok {
		says(fieldDriver, "does not allow the driver %s", name)
	}
	names := make([]string, len(w.dra.DeviceClasses))
	for i := range w.dra.DeviceClasses {
		names[i] = w.dra.DeviceClasses[i].Name
	}
	if name, ok := stranger(listed(p.Spec.DeviceClasses), names, nil); !ok {
		says(fieldClasses, "does not allow the DeviceClass %s", name)
	}
	return why
}

// privileged reports whether the pods ask for what Pod Security "baseline" refuses, or may: a
// container without a securityContext is privileged.
func (w *workload) privileged() bool {
	return w.hostNetwork ||
		slices.ContainsFunc(w.volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) ||
		slices.ContainsFunc(w.containers, func(c *v1beta1.WorkloadContainer) bool { return privileged(c.SecurityContext) })
}

func privileged(s *corev1.SecurityContext) bool {
	return s == nil || ptr.Deref(s.Privileged, false) || s.Capabilities != nil && len(s.Capabilities.Add) > 0 ||
		s.SELinuxOptions != nil || s.WindowsOptions != nil || ptr.Deref(s.ProcMount, corev1.DefaultProcMount) != corev1.DefaultProcMount ||
		s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined ||
		s.AppArmorProfile != nil && s.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined
}
