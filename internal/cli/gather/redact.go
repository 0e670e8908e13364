// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/internal/shared/kernel"
)

// removed stands for what is not shown.
const removed = "[removed]"

// Values of these are pairs of a name and a value, where people keep what others must not see.
var pairs = []string{"env", "args", "buildArgs", "httpHeaders"}

// copies are annotations in which tools keep the whole object as it was applied.
var copies = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied",
	"banzaicloud.com/last-applied",
}

// commands are words of a command line: a token may be one of them.
var commands = []string{"args", "command"}

// told are names in such pairs whose values say which kernel, Module and image something is about:
// template variables, which builds get, and images of ours.
var told = append([]string{"OPERATOR_IMAGE", "AGENT_IMAGE", "SIGNER_IMAGE", "BUILD_IMAGE", "BOOT_IMAGE"}, kernel.VariableNames()...)

// leastSecret is how long a value must be to be looked for elsewhere. Shorter ones stand in too
// many words.
const leastSecret = 8

// redactor takes out of objects what may be secret, and remembers it, so that it can be taken out
// of logs and messages, too.
type redactor struct{ secrets map[string]bool }

func newRedactor() *redactor { return &redactor{secrets: map[string]bool{}} }

// object takes out values of environments, build arguments and command lines, and what only the API
// server needs. The command lines of our own programs stay: none of them has a Secret.
func (r *redactor) object(o *unstructured.Unstructured, ours bool) {
	if meta, ok := o.Object["metadata"].(map[string]any); ok {
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			for _, name := range copies {
				delete(annotations, name)
			}
		}
		// Who wrote what and when is kept, the names of all fields are not.
		if fields, ok := meta["managedFields"].([]any); ok {
			for _, f := range fields {
				if entry, ok := f.(map[string]any); ok {
					delete(entry, "fieldsV1")
				}
			}
		}
	}
	r.walk(o.Object, ours)
}

func (r *redactor) walk(value any, ours bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			list, isList := inner.([]any)
			switch {
			case isList && slices.Contains(pairs, key) && hasPairs(list):
				r.pairs(list)
			case isList && slices.Contains(commands, key) && !ours:
				v[key] = r.words(list)
			default:
				r.walk(inner, ours)
			}
		}
	case []any:
		for _, inner := range v {
			r.walk(inner, ours)
		}
	}
}

func hasPairs(list []any) bool {
	return slices.ContainsFunc(list, func(item any) bool {
		_, ok := item.(map[string]any)
		return ok
	})
}

// pairs keeps names, and where values come from.
func (r *redactor) pairs(list []any) {
	for _, item := range list {
		if pair, ok := item.(map[string]any); ok {
			name, _ := pair["name"].(string)
			if value, ok := pair["value"].(string); ok && value != "" && !slices.Contains(told, name) {
				r.remember(value)
				pair["value"] = removed
			}
		}
	}
}

// words keeps how many there were.
func (r *redactor) words(list []any) []any {
	if len(list) == 0 {
		return list
	}
	for _, item := range list {
		if word, ok := item.(string); ok {
			r.remember(word)
			if _, value, ok := strings.Cut(word, "="); ok {
				r.remember(value)
			}
		}
	}
	return []any{fmt.Sprintf("%s: %d", removed, len(list))}
}

func (r *redactor) remember(value string) {
	if len(value) >= leastSecret {
		r.secrets[value] = true
	}
}

// What has the form of a credential, wherever it stands.
var credentials = []struct {
	form *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(://)[^/\s:@"']+:[^/\s@"']+@`), "${1}" + removed + "@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "${1} " + removed},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`), removed},
	{regexp.MustCompile(`(?i)\b(password|passwd|secret|token)(["']?[ \t]*[:=][ \t]*["']?)[^\s"',{}\[\]][^\s"',}]{3,}`), "${1}${2}" + removed},
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`), removed},
}

// text takes what was removed from objects, and what looks like a credential, out of a text. It is
// for when all objects have been seen.
func (r *redactor) text(content string) string {
	secrets := make([]string, 0, len(r.secrets))
	for secret := range r.secrets {
		secrets = append(secrets, secret)
	}
	// The longest first: one may be part of another.
	slices.SortFunc(secrets, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for _, secret := range secrets {
		content = strings.ReplaceAll(content, secret, removed)
	}
	for _, c := range credentials {
		content = c.form.ReplaceAllString(content, c.with)
	}
	return content
}
