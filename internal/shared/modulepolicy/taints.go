// SPDX-License-Identifier: Apache-2.0

package modulepolicy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// OwnTaints is the end of the domain of the startup taints that belong to a namespace: its Modules
// may name <namespace>.startup.drover.dev/<name>, and no others may.
const OwnTaints = ".startup.drover.dev/"

// Taints are the keys of startup taints that an administrator lets Modules name, besides those of
// their own namespace. The zero value lists none.
type Taints struct{ listed []listedTaint }

// listedTaint is a pattern of keys, for one namespace or, if that is empty, for all.
type listedTaint struct{ namespace, pattern string }

// ParseTaints reads a list of [NAMESPACE:]KEY, separated by commas. A key that ends with * is the
// beginning of keys. The error names the entry that is wrong.
func ParseTaints(text string) (Taints, error) {
	var t Taints
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		namespace, pattern, scoped := strings.Cut(entry, ":")
		if !scoped {
			namespace, pattern = "", entry
		}
		if scoped && len(validation.IsDNS1123Label(namespace)) > 0 {
			return Taints{}, fmt.Errorf("%q: %q is not the name of a namespace", entry, namespace)
		}
		// Of a beginning, one more letter must make a key.
		key, begins := strings.CutSuffix(pattern, "*")
		if begins {
			key += "x"
		}
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return Taints{}, fmt.Errorf("%q: not the key of a taint, nor the beginning of one: %s", entry, wrong[0])
		}
		t.listed = append(t.listed, listedTaint{namespace, pattern})
	}
	return t, nil
}

// Allow reports whether Modules of a namespace may name a taint's key.
func (t Taints) Allow(namespace, key string) bool {
	return strings.HasPrefix(key, namespace+OwnTaints) || slices.ContainsFunc(t.listed, func(l listedTaint) bool {
		return (l.namespace == "" || l.namespace == namespace) && Matches(l.pattern, key)
	})
}

// Denied is why a Module may not name its startup taint, or nil: it may, or names none.
func (t Taints) Denied(m *v1beta1.Module) *reasons.Problem {
	key := m.Spec.StartupTaint
	if key == "" || t.Allow(m.Namespace, key) {
		return nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonStartupTaintDenied, Message: fmt.Sprintf(
		"spec.startupTaint: %s is neither a taint of namespace %s (%s%sNAME) nor listed for it in the operator's --startup-taints; Drover "+
			"removes it from no node for this Module", key, m.Namespace, m.Namespace, OwnTaints)}
}
