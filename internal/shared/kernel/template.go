// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The template variables that the caller of [Version.Variables] gives.
const (
	VarContainerImage = "CONTAINER_IMAGE"
	VarNodeArch       = "NODE_ARCH" // as Go, container images and node labels spell it
	VarModName        = "MOD_NAME"
	VarModNamespace   = "MOD_NAMESPACE"
)

const varFullVersion = "KERNEL_FULL_VERSION"

// variables are all template variables and how to read each; nil: the caller gives it.
var variables = map[string]func(*Version) string{
	varFullVersion:          func(v *Version) string { return v.Full },
	"KERNEL_VERSION":        func(v *Version) string { return v.Full },
	"KERNEL_XYZ":            func(v *Version) string { return v.XYZ },
	"KERNEL_X":              func(v *Version) string { return v.X },
	"KERNEL_Y":              func(v *Version) string { return v.Y },
	"KERNEL_Z":              func(v *Version) string { return v.Z },
	"KERNEL_RHEL_VERSION":   func(v *Version) string { return v.RHELVersion },
	"KERNEL_RHEL_RELEASE":   func(v *Version) string { return v.RHELRelease },
	"KERNEL_RHEL_ARCH":      func(v *Version) string { return v.RHELArch },
	"KERNEL_DEBIAN_RELEASE": func(v *Version) string { return v.DebianRelease },
	"KERNEL_DEBIAN_FLAVOR":  func(v *Version) string { return v.DebianFlavor },
	"KERNEL_UBUNTU_RELEASE": func(v *Version) string { return v.DebianRelease },
	"KERNEL_UBUNTU_FLAVOR":  func(v *Version) string { return v.DebianFlavor },
	VarContainerImage:       nil,
	VarNodeArch:             nil,
	VarModName:              nil,
	VarModNamespace:         nil,
}

// VariableNames returns all template variables, sorted.
func VariableNames() []string { return slices.Sorted(maps.Keys(variables)) }

// Variables returns the variables with a value for this version, and over them those of extra.
func (v Version) Variables(extra map[string]string) map[string]string {
	values := make(map[string]string, len(variables))
	for name, read := range variables {
		if read == nil {
			continue
		}
		if value := read(&v); value != "" {
			values[name] = value
		}
	}
	maps.Copy(values, extra)
	return values
}

// Substitute replaces $NAME and ${NAME} in template by values, in one pass. A "$" that no name
// follows stays. It is an error if a variable is unknown or has no value (such as a RHEL variable
// on another kernel), or if "${" is not closed.
func Substitute(template string, values map[string]string) (string, error) {
	parsed, err := parseTemplate(template)
	if err != nil {
		return "", err
	}
	return parsed.render(func(name string) string { return values[name] })
}

// segment is literal text followed by a variable; the last one may have no variable.
type segment struct{ text, variable string }

type template []segment

func parseTemplate(source string) (template, error) {
	var parsed template
	text := strings.Builder{}
	for {
		before, after, found := strings.Cut(source, "$")
		text.WriteString(before)
		if !found {
			return append(parsed, segment{text: text.String()}), nil
		}
		name, rest, err := variableAt(after)
		if err != nil {
			return nil, err
		}
		source = rest
		if name == "" {
			text.WriteByte('$')
			continue
		}
		parsed = append(parsed, segment{text: text.String(), variable: name})
		text.Reset()
	}
}

// variableAt reads the name that follows a "$". It is empty if the "$" stands for itself.
func variableAt(after string) (name, rest string, err error) {
	if braced, ok := strings.CutPrefix(after, "{"); ok {
		name, rest, ok = strings.Cut(braced, "}")
		if !ok {
			return "", "", fmt.Errorf("variable %q lacks its closing brace", "${"+braced)
		}
		if nameLength(name) != len(name) || name == "" {
			return "", "", fmt.Errorf("%q is not a variable name", name)
		}
	} else {
		n := nameLength(after)
		name, rest = after[:n], after[n:]
	}
	if name == "" {
		return "", rest, nil
	}
	if _, known := variables[name]; !known {
		return "", "", fmt.Errorf("unknown variable %s; the variables are %s", name, strings.Join(VariableNames(), ", "))
	}
	return name, rest, nil
}

// nameLength is the length of the identifier that s starts with.
func nameLength(s string) int {
	n := 0
	for n < len(s) {
		c := s[n]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (n == 0 || !isDigit(c)) {
			break
		}
		n++
	}
	return n
}

func (t template) uses(variable string) bool {
	return slices.ContainsFunc(t, func(s segment) bool { return s.variable == variable })
}

func (t template) render(value func(name string) string) (string, error) {
	var out strings.Builder
	for _, s := range t {
		out.WriteString(s.text)
		if s.variable == "" {
			continue
		}
		v := value(s.variable)
		if v == "" {
			return "", missingValue(s.variable, value(varFullVersion))
		}
		out.WriteString(v)
	}
	return out.String(), nil
}

// missingValue says why a known variable has no value for this kernel.
func missingValue(variable, version string) error {
	if variables[variable] == nil {
		return fmt.Errorf("variable %s has no value here", variable)
	}
	if version == "" {
		return fmt.Errorf("variable %s: %w", variable, errNoVersion)
	}
	switch {
	case strings.HasPrefix(variable, "KERNEL_RHEL_"):
		return fmt.Errorf("variable %s: kernel %s is not a RHEL kernel", variable, version)
	case strings.HasPrefix(variable, "KERNEL_DEBIAN_"):
		return fmt.Errorf("variable %s: kernel %s is not a Debian kernel", variable, version)
	case strings.HasPrefix(variable, "KERNEL_UBUNTU_"):
		return fmt.Errorf("variable %s: kernel %s is not an Ubuntu kernel", variable, version)
	}
	return fmt.Errorf("variable %s: kernel %s does not start with three numbers", variable, version)
}

var errNoVersion = errors.New("the kernel version is unknown")
