// SPDX-License-Identifier: Apache-2.0

package security

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// factsOf are what a pod may do on its node, and what it is held to: each fact a few words.
func factsOf(pod *corev1.PodSpec) []string {
	var facts []string
	for _, host := range []struct {
		shared bool
		what   string
	}{{pod.HostNetwork, "the host's network"}, {pod.HostPID, "the host's processes"}, {pod.HostIPC, "the host's IPC"}} {
		if host.shared {
			facts = append(facts, host.what)
		}
	}
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	facts = append(facts, ofAll(pod, containers)...)
	facts = append(facts, volumeFacts(pod, containers)...)
	if pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken {
		facts = append(facts, "no token")
	} else {
		facts = append(facts, "a token of its ServiceAccount")
	}
	return facts
}

// ofAll are the facts of a pod's containers; those that are alike are said once.
func ofAll(pod *corev1.PodSpec, containers []corev1.Container) []string {
	if len(containers) == 1 {
		return containerFacts(pod, &containers[0])
	}
	var said []string
	names := map[string][]string{}
	for i := range containers {
		facts := strings.Join(containerFacts(pod, &containers[i]), ", ")
		if names[facts] == nil {
			said = append(said, facts)
		}
		names[facts] = append(names[facts], "`"+containers[i].Name+"`")
	}
	for i, facts := range said {
		said[i] = strings.Join(names[facts], ", ") + ": " + facts
	}
	return said
}

// containerFacts are those of one container.
func containerFacts(pod *corev1.PodSpec, c *corev1.Container) []string {
	p, s := ptr.Deref(pod.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	if ptr.Deref(s.Privileged, false) {
		return []string{"**privileged**: everything on the node"}
	}
	var facts []string
	user, nonRoot := cmp.Or(s.RunAsUser, p.RunAsUser), ptr.Deref(cmp.Or(s.RunAsNonRoot, p.RunAsNonRoot), false)
	switch {
	case user != nil && *user == 0:
		facts = append(facts, "**user 0**")
	case user != nil:
		facts = append(facts, fmt.Sprintf("user %d", *user))
	case nonRoot:
		facts = append(facts, "not root")
	default:
		facts = append(facts, "the image's user")
	}
	caps := ptr.Deref(s.Capabilities, corev1.Capabilities{})
	if !slices.Contains(caps.Drop, "ALL") {
		facts = append(facts, "the runtime's capabilities")
	}
	for _, capability := range caps.Add {
		facts = append(facts, "**capability "+string(capability)+"**")
	}
	if len(caps.Add) == 0 && slices.Contains(caps.Drop, "ALL") {
		facts = append(facts, "no capabilities")
	}
	if ptr.Deref(s.AllowPrivilegeEscalation, true) {
		facts = append(facts, "can gain privileges")
	} else {
		facts = append(facts, "gains none")
	}
	if ptr.Deref(s.ReadOnlyRootFilesystem, false) {
		facts = append(facts, "read-only root")
	} else {
		facts = append(facts, "writable root")
	}
	return append(facts, profiles(&p, &s)...)
}

// profiles are those of the kernel's filters.
func profiles(p *corev1.PodSecurityContext, s *corev1.SecurityContext) []string {
	var facts []string
	if seccomp := cmp.Or(s.SeccompProfile, p.SeccompProfile); seccomp != nil {
		facts = append(facts, "seccomp "+string(seccomp.Type))
	} else {
		facts = append(facts, "seccomp as the kubelet's default")
	}
	if profile := cmp.Or(s.AppArmorProfile, p.AppArmorProfile); profile != nil {
		facts = append(facts, "AppArmor "+string(profile.Type))
	}
	if options := cmp.Or(s.SELinuxOptions, p.SELinuxOptions); options != nil {
		facts = append(facts, "SELinux type "+options.Type)
	}
	return facts
}

// volumeFacts are what a pod sees of its host, and which Secrets and ConfigMaps it mounts.
func volumeFacts(pod *corev1.PodSpec, containers []corev1.Container) []string {
	var facts []string
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		switch {
		case v.HostPath != nil && writable(containers, v.Name):
			facts = append(facts, "**host `"+v.HostPath.Path+"`, writable**")
		case v.HostPath != nil:
			facts = append(facts, "host `"+v.HostPath.Path+"`, read-only")
		case v.Secret != nil:
			facts = append(facts, "Secret `"+v.Secret.SecretName+"`")
		case v.ConfigMap != nil:
			facts = append(facts, "ConfigMap `"+v.ConfigMap.Name+"`")
		case v.Projected != nil:
			facts = append(facts, "projected volume `"+v.Name+"`")
		}
	}
	return facts
}

func writable(containers []corev1.Container, volume string) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly })
	})
}
