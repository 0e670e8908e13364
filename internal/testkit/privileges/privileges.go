// SPDX-License-Identifier: Apache-2.0

// Package privileges lists what the agent's DaemonSet is allowed on a node, item by item, so that a
// document can give a reason for each and a test can take each away. What it does not know is an
// error: nothing is granted unnoticed.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Item is one thing that the agent is allowed.
type Item struct {
	// Name, for example "capability SYSLOG" or "mount /host/proc".
	Name string
	// Remove takes it away and leaves everything else.
	Remove func(*corev1.PodSpec)
}

// Read reads a DaemonSet from a file.
func Read(path string) (*appsv1.DaemonSet, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the DaemonSet: %w", err)
	}
	ds := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(content, ds); err != nil {
		return nil, fmt.Errorf("read the DaemonSet: %w", err)
	}
	return ds, nil
}

// List returns everything that a pod of the agent is allowed on its node. It fails where the pod is
// not held to what it must be held to.
func List(pod *corev1.PodSpec) ([]Item, error) {
	if err := held(pod); err != nil {
		return nil, err
	}
	c := &pod.Containers[0]
	var items []Item
	add := func(name string, remove func(*corev1.PodSpec)) {
		items = append(items, Item{Name: name, Remove: remove})
	}
	for _, capability := range c.SecurityContext.Capabilities.Add {
		add("capability "+string(capability), func(p *corev1.PodSpec) {
			caps := p.Containers[0].SecurityContext.Capabilities
			caps.Add = slices.DeleteFunc(caps.Add, func(c corev1.Capability) bool { return c == capability })
		})
	}
	if user := c.SecurityContext.RunAsUser; user != nil && *user == 0 {
		add("user 0", func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.RunAsUser = nil })
	}
	if options := c.SecurityContext.SELinuxOptions; options != nil {
		add("SELinux type "+options.Type, func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.SELinuxOptions = nil })
	}
	if profile := c.SecurityContext.AppArmorProfile; profile != nil {
		add("AppArmor "+string(profile.Type), func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AppArmorProfile = nil })
	}
	if pod.HostNetwork {
		add("hostNetwork", func(p *corev1.PodSpec) { p.HostNetwork, p.DNSPolicy = false, corev1.DNSClusterFirst })
	}
	for _, m := range c.VolumeMounts {
		items = append(items, mountItems(m)...)
	}
	return items, nil
}

// mountItems are a mount, the right to write to it, and what it shares with the host while it
// stands.
func mountItems(m corev1.VolumeMount) []Item {
	change := func(do func(*corev1.VolumeMount)) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			for i := range p.Containers[0].VolumeMounts {
				if mount := &p.Containers[0].VolumeMounts[i]; mount.MountPath == m.MountPath {
					do(mount)
				}
			}
		}
	}
	items := []Item{{Name: "mount " + m.MountPath, Remove: func(p *corev1.PodSpec) {
		mounts := &p.Containers[0].VolumeMounts
		*mounts = slices.DeleteFunc(*mounts, func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath })
		p.Volumes = slices.DeleteFunc(p.Volumes, func(v corev1.Volume) bool { return !mounted(p, v.Name) })
	}}}
	if !m.ReadOnly {
		items = append(items, Item{Name: "write " + m.MountPath, Remove: change(func(m *corev1.VolumeMount) { m.ReadOnly = true })})
	}
	if m.MountPropagation != nil {
		items = append(items, Item{Name: "propagation " + m.MountPath, Remove: change(func(m *corev1.VolumeMount) { m.MountPropagation = nil })})
	}
	return items
}

func mounted(p *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(p.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// held names every limit that the pod must be under and is not.
func held(pod *corev1.PodSpec) error {
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		return errors.New("the agent's pod has more than one container")
	}
	s := pod.Containers[0].SecurityContext
	if s == nil || s.Capabilities == nil {
		return errors.New("the agent's container has no security context with capabilities")
	}
	var errs []error
	for what, ok := range map[string]bool{
		"hostPID is not used":                   !pod.HostPID,
		"hostIPC is not used":                   !pod.HostIPC,
		"no host ports are taken":               len(pod.Containers[0].Ports) == 0,
		"it is not privileged":                  s.Privileged != nil && !*s.Privileged,
		"it cannot gain privileges":             s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation,
		"its root file system is read-only":     s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem,
		"all capabilities are dropped at first": slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"seccomp is RuntimeDefault":             s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"procMount is the default":              s.ProcMount == nil,
		"no group is set":                       s.RunAsGroup == nil,
		"nothing is set for the pod":            pod.SecurityContext == nil,
		"no block devices":                      len(pod.Containers[0].VolumeDevices) == 0,
		"every volume is mounted":               !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return !mounted(pod, v.Name) }),
	} {
		if !ok {
			errs = append(errs, fmt.Errorf("not so: %s", what))
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationHostToContainer {
			errs = append(errs, fmt.Errorf("mount %s has the propagation %s", m.Name, *p))
		}
	}
	return errors.Join(errs...)
}
