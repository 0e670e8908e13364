// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
)

const (
	// containerPort serves the page in its pod.
	containerPort = 8080
	portName      = "http"
	container     = "lolcow"
	// user is set because the default image would run as root.
	user = 65532
)

// labels of all children. The first two select the pods and never change.
func labels(l *api.Lolcow) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "lolcow",
		"app.kubernetes.io/instance":   l.Name,
		"app.kubernetes.io/managed-by": Name,
	}
}

func selector(l *api.Lolcow) map[string]string {
	s := labels(l)
	delete(s, "app.kubernetes.io/managed-by")
	return s
}

// deployment runs the page. A changed greeting replaces the pod without a gap.
func deployment(l *api.Lolcow) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Labels: labels(l)},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selector(l)},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(l)},
				Spec:       podSpec(l),
			},
		},
	}
}

// podSpec meets the Pod Security Standard "restricted".
func podSpec(l *api.Lolcow) corev1.PodSpec {
	page := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString(portName)}}
	return corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:  container,
			Image: l.Spec.Image,
			Args:  args(l.Spec.Greeting),
			Env:   []corev1.EnvVar{{Name: "PORT", Value: strconv.Itoa(containerPort)}},
			Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: containerPort, Protocol: corev1.ProtocolTCP}},
			// Others' images may start slowly, and write to /tmp.
			StartupProbe:   &corev1.Probe{ProbeHandler: page, PeriodSeconds: 1, FailureThreshold: 60},
			ReadinessProbe: &corev1.Probe{ProbeHandler: page, PeriodSeconds: 5, TimeoutSeconds: 2},
			LivenessProbe:  &corev1.Probe{ProbeHandler: page, PeriodSeconds: 20, TimeoutSeconds: 5},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		}},
		Volumes: []corev1.Volume{{
			Name:         "tmp",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("16Mi"))}},
		}},
	}
}

// args are the greeting, or none: an empty argument would count as a greeting. The kubelet replaces
// $(NAME) and $$, so every $ is doubled.
func args(greeting string) []string {
	if greeting == "" {
		return nil
	}
	return []string{strings.ReplaceAll(greeting, "$", "$$")}
}
