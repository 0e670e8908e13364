// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Mode says how a carrier pod gets at the content of a kernel module image.
type Mode string

const (
	// ModeAuto uses an image volume where the node can mount one, else an init container.
	ModeAuto Mode = "auto"
	// ModeImageVolume mounts the image as a volume.
	ModeImageVolume Mode = "imageVolume"
	// ModeInitContainer runs `cp` in a container made from the image. Besides nodes that cannot mount
	// images, it is for clusters whose image policies look at containers only.
	ModeInitContainer Mode = "initContainer"
)

// ParseMode reads a mode as it is written on a command line.
func ParseMode(text string) (Mode, error) {
	switch mode := Mode(text); mode {
	case ModeAuto, ModeImageVolume, ModeInitContainer:
		return mode, nil
	}
	return "", fmt.Errorf("unknown delivery mode %q: want %s, %s or %s", text, ModeAuto, ModeImageVolume, ModeInitContainer)
}

// Oldest versions that mount image volumes without any setting. The kubelet's feature gate is on by
// default from 1.35; containerd learnt it in 2.1, CRI-O in 1.31.
var (
	oldestKubelet    = version.MustParseGeneric("1.35.0")
	oldestContainerd = version.MustParseGeneric("2.1.0")
	oldestCRIO       = version.MustParseGeneric("1.31.0")
)

// ModeOf is the mode of a carrier that exists.
func ModeOf(carrier *corev1.Pod) Mode {
	for i := range carrier.Spec.InitContainers {
		if carrier.Spec.InitContainers[i].Name == copyName {
			return ModeInitContainer
		}
	}
	return ModeImageVolume
}

// For is the mode to use on a node. It is a property of the node, not of the cluster: the API
// server accepts image volumes for kubelets and runtimes that can never start such a pod.
func (m Mode) For(info *corev1.NodeSystemInfo) Mode {
	if m != ModeAuto && m != "" {
		return m
	}
	if mountsImages(info) {
		return ModeImageVolume
	}
	return ModeInitContainer
}

func mountsImages(info *corev1.NodeSystemInfo) bool {
	runtime, number, found := strings.Cut(info.ContainerRuntimeVersion, "://")
	if !found || !atLeast(info.KubeletVersion, oldestKubelet) {
		return false
	}
	switch runtime {
	case "containerd":
		return atLeast(number, oldestContainerd)
	case "cri-o":
		return atLeast(number, oldestCRIO)
	}
	return false
}

// atLeast compares major and minor numbers only, so that a pre-release or a vendor's suffix
// ("v1.35.0-rc.1", "1.35.2+k3s1") counts as its release. What cannot be parsed is not new enough:
// the init container works everywhere.
func atLeast(text string, oldest *version.Version) bool {
	have, err := version.ParseGeneric(text)
	if err != nil {
		return false
	}
	return have.Major() > oldest.Major() || (have.Major() == oldest.Major() && have.Minor() >= oldest.Minor())
}
