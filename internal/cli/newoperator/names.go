// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxName leaves room for suffixes.
const maxName = 40

var (
	kindForm   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,39}$`)
	moduleForm = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)
	// reserved are the ends of groups that Kubernetes keeps for itself.
	reserved = []string{"k8s.io", "kubernetes.io"}
)

func (o *options) validateName() error {
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 || len(o.Name) > maxName {
		return fmt.Errorf("NAME %q is not valid: it names a namespace and a program, and takes at most %d lower case letters, digits and hyphens",
			o.Name, maxName)
	}
	return nil
}

func (o *options) validateGroup() error {
	switch problems := validation.IsDNS1123Subdomain(o.Group); {
	case o.Group == "":
		return errors.New("--group is missing: give a domain of yours, such as acme.example.com")
	case len(problems) > 0 || !strings.Contains(o.Group, "."):
		return fmt.Errorf("--group %q is not a domain with a dot, in lower case, such as acme.example.com", o.Group)
	}
	if slices.ContainsFunc(reserved, func(r string) bool { return o.Group == r || strings.HasSuffix(o.Group, "."+r) }) {
		return fmt.Errorf("--group %q is not yours: Kubernetes keeps groups below %s for itself", o.Group, strings.Join(reserved, " and "))
	}
	return nil
}

func (o *options) validateKind() error {
	switch problems := validation.IsDNS1035Label(o.Plural); {
	case o.Kind == "":
		return errors.New("--kind is missing: name the custom resource's kind, such as Card")
	case !kindForm.MatchString(o.Kind):
		return fmt.Errorf("--kind %q is not an upper case letter followed by at most 39 letters and digits, such as Card", o.Kind)
	case slices.ContainsFunc([]string{"List", "Spec", "Status"}, func(end string) bool { return strings.HasSuffix(o.Kind, end) }):
		return fmt.Errorf("--kind %q ends in List, Spec or Status, which are for the types that belong to a kind", o.Kind)
	case len(problems) > 0:
		return fmt.Errorf("--plural %q is not valid: %s", o.Plural, strings.Join(problems, "; "))
	}
	return nil
}

func (o *options) validateModule() error {
	if !moduleForm.MatchString(o.Module) {
		return fmt.Errorf("--module %q is not the path of a Go module, such as example.com/acme-card-operator", o.Module)
	}
	return nil
}

// plural is the usual plural of an English noun, in lower case.
func plural(kind string) string {
	kind = strings.ToLower(kind)
	switch {
	case kind == "":
		return ""
	case strings.HasSuffix(kind, "y") && !strings.ContainsAny(kind[max(len(kind)-2, 0):len(kind)-1], "aeiou"):
		return kind[:len(kind)-1] + "ies"
	case slices.ContainsFunc([]string{"s", "x", "z", "ch", "sh"}, func(end string) bool { return strings.HasSuffix(kind, end) }):
		return kind + "es"
	}
	return kind + "s"
}

// kernelModule is a name for the sample's kernel module: AcmeCard gives acme_card.
func kernelModule(kind string) string {
	var name strings.Builder
	for i, r := range kind {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(rune(kind[i-1])) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}
