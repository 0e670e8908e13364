// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	agentconfig "github.com/drover-project/drover/config/agent"
	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	// Name of the static pod; the API server shows it as drover-boot-<node>.
	Name = "drover-boot"
	// ManifestFile is its file in the kubelet's staticPodPath.
	ManifestFile = Name + ".yaml"
	// mark is the file's first line. A file without it is not ours.
	mark = "# Written by drover-agent, which rewrites and removes it: what is changed here is lost. A file without this line is left alone.\n"
	// nodeCritical is the priority of system-node-critical, which nobody fills in for static pods.
	nodeCritical    = int32(2000001000)
	manifestsVolume = "boot-manifests"
	// Volumes of the DaemonSet.
	stateVolume, firmwareVolume, podsVolume, logsVolume = "state", "firmware", "pods", "pod-logs"
)

// PodOptions describe the static pod. Paths are the agent's, if not said otherwise.
type PodOptions struct {
	NodeName            string
	Image               string
	HostRoot            string
	StateDir, StatePath string // StatePath is the path on the host
	FirmwareDir         string
	ManifestDir         string // the kubelet's staticPodPath, below HostRoot
	Args                []string
}

// Render makes the static pod's file from the DaemonSet: with its user, capabilities and mounts,
// but for what only deliveries and reports need, and without a ServiceAccount.
func Render(o PodOptions) ([]byte, error) {
	if o.NodeName == "" || o.Image == "" || o.StatePath == "" || !strings.HasPrefix(o.ManifestDir, o.HostRoot+"/") {
		return nil, errors.New("static pod: it needs a node name, an image, the state directory's path on the host, " +
			"and a manifest directory below the host's root")
	}
	var set struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(agentconfig.DaemonSet, &set); err != nil {
		return nil, fmt.Errorf("static pod: the DaemonSet: %w", err)
	}
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: Name, Namespace: set.Namespace,
			Labels: map[string]string{"app.kubernetes.io/name": Name, "app.kubernetes.io/part-of": "drover",
				"app.kubernetes.io/managed-by": "drover-agent"},
		},
		Spec: set.Spec.Template.Spec,
	}
	o.complete(&pod.Spec)
	data, err := yaml.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("static pod: %w", err)
	}
	return append([]byte(mark), data...), nil
}

func (o PodOptions) complete(spec *corev1.PodSpec) {
	spec.ServiceAccountName, spec.AutomountServiceAccountToken = "", new(false)
	spec.DNSPolicy = corev1.DNSDefault
	spec.NodeSelector = nil // it is on its node
	spec.Priority = new(nodeCritical)
	c := &spec.Containers[0]
	c.Name, c.Image, c.ImagePullPolicy = "boot", o.Image, corev1.PullIfNotPresent
	c.Args = append([]string{
		"boot", "--node-name=" + o.NodeName, "--host-root=" + o.HostRoot, "--state-dir=" + o.StateDir,
		"--firmware-dir=" + o.FirmwareDir, "--boot-manifest-dir=" + o.ManifestDir,
	}, o.Args...)
	if caps := c.SecurityContext.Capabilities; caps != nil { // it is for naming a module's users, which only the DaemonSet's agent reports
		caps.Add = slices.DeleteFunc(caps.Add, func(c corev1.Capability) bool { return c == "SYS_PTRACE" })
	}
	c.SecurityContext.AppArmorProfile = nil // the runtime's profile denies only that
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil })
	unused := func(name string) bool { return name == podsVolume || name == logsVolume }
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return unused(m.Name) })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return unused(v.Name) })
	inside := map[string]string{stateVolume: o.StateDir, firmwareVolume: o.HostRoot + o.FirmwareDir}
	outside := map[string]string{stateVolume: o.StatePath, firmwareVolume: o.FirmwareDir}
	for i, m := range c.VolumeMounts {
		if path, ok := inside[m.Name]; ok {
			c.VolumeMounts[i].MountPath = path
		}
	}
	for _, v := range spec.Volumes {
		if path, ok := outside[v.Name]; ok {
			v.HostPath.Path = path
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: manifestsVolume, MountPath: o.ManifestDir})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: manifestsVolume, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: strings.TrimPrefix(o.ManifestDir, o.HostRoot), Type: new(corev1.HostPathDirectory)},
	}})
}

var errNotOurs = errors.New("exists, and drover-agent did not write it: remove it, or turn loading at boot off")

// put writes the manifest if it is another, and tells whether it did.
func put(dir string, data []byte) (bool, error) {
	now, err := read(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if bytes.Equal(now, data) {
		return false, nil
	}
	return true, statefile.Replace(dir, ManifestFile, data, 0o600, nil)
}

// withdraw removes our manifest, and tells whether there was one.
func withdraw(dir string) (bool, error) {
	if _, err := read(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	return true, statefile.Remove(dir, ManifestFile)
}

func read(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("static pods: %w", err)
	}
	defer func() { _ = root.Close() }() // only read from
	data, err := nofollow.ReadFile(root, ManifestFile, 1<<20)
	_, odd := errors.AsType[*nofollow.KindError](err)
	if odd || err == nil && !bytes.HasPrefix(data, []byte(mark)) {
		return nil, fmt.Errorf("%s %w", filepath.Join(dir, ManifestFile), errNotOurs)
	}
	return data, err
}
