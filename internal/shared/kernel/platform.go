// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Platform is a kernel's version, as `uname -r` prints it, and a processor, as Go spells it.
type Platform struct{ Kernel, Architecture string }

// processor is an InvalidError's What.
const processor = "processor"

// maxRelease is how many bytes the kernel has for its version (struct new_utsname), without the
// NUL.
const maxRelease = 64

var (
	// validVersion has what versions of kernels consist of. What shells, make and paths read otherwise
	// than as text is not in it.
	validVersion = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9][-A-Za-z0-9._+~]{0,%d}$`, maxRelease-1))

	validProcessor = regexp.MustCompile(`^[a-z0-9]{1,16}$`)
)

// InvalidError is a kernel version or a processor that no machine has. Kubelets, spokes and
// people write these names as they like, and builds run commands with them.
type InvalidError struct{ What, Name string }

// Error quotes the name, or the beginning of a long one.
func (e *InvalidError) Error() string {
	name := e.Name
	if len(name) > maxRelease {
		name = name[:maxRelease] + "…"
	}
	if e.What == processor {
		return fmt.Sprintf("%q is not a processor: at most 16 of a-z 0-9 name one, such as amd64", name)
	}
	return fmt.Sprintf("%q is not a kernel version: uname -r prints at most %d of A-Z a-z 0-9 . _ + ~ - and begins with a letter or digit",
		name, maxRelease)
}

// CheckVersion returns an [InvalidError] unless a kernel can have the version. All kernel versions
// that come from outside pass here: those of nodes, spokes, API objects and flags.
func CheckVersion(version string) error {
	if !validVersion.MatchString(version) {
		return &InvalidError{"kernel version", version}
	}
	return nil
}

// Check returns an [InvalidError] unless the kernel can have its version, and the processor, where
// it is known, its name.
func (p Platform) Check() error {
	if p.Architecture != "" && !validProcessor.MatchString(p.Architecture) {
		return &InvalidError{processor, p.Architecture}
	}
	return CheckVersion(p.Kernel)
}

// PlatformOf is what a node reports, with the error of [Platform.Check]. It is the only reader of
// these fields of a node: the kubelet may write anything there.
func PlatformOf(node *corev1.NodeSystemInfo) (Platform, error) {
	p := Platform{node.KernelVersion, node.Architecture}
	return p, p.Check()
}

// Show is the kernel version that a node reports, for people: without a trailing "+", and quoted if
// no kernel can have it.
func Show(node *corev1.NodeSystemInfo) string {
	p, err := PlatformOf(node)
	var invalid *InvalidError
	if errors.As(err, &invalid) && invalid.Name == p.Kernel {
		return fmt.Sprintf("%.*q", maxRelease, p.Kernel)
	}
	return Trim(p.Kernel)
}

// Reason is the reason of the closed set for an error of this package.
func Reason(err error) string {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return v1beta1.ReasonInvalidKernelVersion
	}
	return v1beta1.ReasonNoKernelMapping
}
