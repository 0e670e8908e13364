// SPDX-License-Identifier: Apache-2.0

package ptemplate

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/kit/labels"
)

// consumerName is the label value of the only pods that the operator sees.
const consumerName = "ptemplate-consumer"

// ConsumerLabels are only on consumers of this Ptemplate, by its UID.
func ConsumerLabels(p *v1alpha1.Ptemplate) map[string]string {
	return map[string]string{nameLabel: consumerName, instanceLabel: p.Name, uidLabel: string(p.UID)}
}

// consumer is the DaemonSet of the pods that use the devices. They run where the kernel module is
// ready, and meet the Pod Security Standard "restricted".
func consumer(p *v1alpha1.Ptemplate) *appsv1.DaemonSet {
	s := settingsOf(p)
	own := ConsumerLabels(p)
	own[managedByLabel] = Name
	spec := corev1.PodSpec{
		NodeSelector:                 labels.WhereReady(p.Namespace, p.Name, s.selector),
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{consumerContainer(s.consumer, s.required)},
	}
	if s.secret != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: s.secret}}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name + "-consumer", Labels: own},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: ConsumerLabels(p)},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(own)}, Spec: spec},
		},
	}
}

// consumerContainer asks for devices by request and limit, which an extended resource needs equal.
func consumerContainer(image string, required int32) corev1.Container {
	devices := *resource.NewQuantity(int64(required), resource.DecimalSI)
	return corev1.Container{
		Name:  "consumer",
		Image: image,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{Resource: devices},
			Limits:   corev1.ResourceList{Resource: devices},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   ptr.To(true),
		},
	}
}

// consumers are the names of a DaemonSet's running pods, sorted; never nil: the API takes no null.
func consumers(set *appsv1.DaemonSet, pods []corev1.Pod) []string {
	names := []string{}
	for i := range pods {
		pod := &pods[i]
		if metav1.IsControlledBy(pod, set) && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}
