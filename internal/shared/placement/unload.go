// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// UnloadTaints are the keys of taints that ask for an unload, as an administrator lists them. The
// zero value lists none: then no taint unloads anything.
type UnloadTaints []string

// ofKubernetes are the domains of Kubernetes itself.
var ofKubernetes = regexp.MustCompile(`^([^/]*\.)?(kubernetes|k8s)\.io/`)

// ParseUnloadTaints reads a list of keys, separated by commas. The error names the entry that is
// wrong.
func ParseUnloadTaints(text string) (UnloadTaints, error) {
	var u UnloadTaints
	for key := range strings.SplitSeq(text, ",") {
		key = strings.TrimSpace(key)
		if key == "" {
			continue
		}
		if err := checkUnloadTaint(key); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		u = append(u, key)
	}
	return u, nil
}

func checkUnloadTaint(key string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return fmt.Errorf("not the key of a taint: %s", wrong[0])
	}
	if ofKubernetes.MatchString(key) {
		return errors.New("a taint of Kubernetes itself, which tells of a node's state and never asks for an unload")
	}
	return nil
}

// Wanted reports whether the node should hold the kernel module, its kernel's mapping aside. Once
// the node follows the Module, no cordon and no taint unloads, but one that asks for it.
func (u UnloadTaints) Wanted(m *v1beta1.Module, node *corev1.Node, follows bool) bool {
	return Eligible(m, node) && u.Asks(m, node) == nil && (follows || Untolerated(Tolerations(m), node) == nil)
}

// Asks is the node's first taint that asks for the Module's unload, or nil. It is part of the node.
func (u UnloadTaints) Asks(m *v1beta1.Module, node *corev1.Node) *corev1.Taint {
	if len(u) == 0 {
		return nil
	}
	tolerations := Tolerations(m)
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; slices.Contains(u, taint.Key) && !tolerates(tolerations, taint) {
			return taint
		}
	}
	return nil
}

// KeepOut reports whether only taints that ask for an unload keep a kernel module from a node.
func (u UnloadTaints) KeepOut(m *v1beta1.Module, node *corev1.Node) bool {
	if m.Spec.ModuleLoader == nil || u.Asks(m, node) == nil || !Eligible(m, node) {
		return false
	}
	tolerations := slices.Clone(Tolerations(m))
	for _, key := range u {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return Untolerated(tolerations, node) == nil
}
