// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The template variables. The list is closed: any other name is an error.
const (
	VarKernelFullVersion   = "KERNEL_FULL_VERSION"
	VarKernelVersion       = "KERNEL_VERSION" // the same as KERNEL_FULL_VERSION
	VarKernelXYZ           = "KERNEL_XYZ"
	VarKernelX             = "KERNEL_X"
	VarKernelY             = "KERNEL_Y"
	VarKernelZ             = "KERNEL_Z"
	VarKernelRHELVersion   = "KERNEL_RHEL_VERSION"
	VarKernelRHELRelease   = "KERNEL_RHEL_RELEASE"
	VarKernelRHELArch      = "KERNEL_RHEL_ARCH"
	VarKernelDebianRelease = "KERNEL_DEBIAN_RELEASE"
	VarKernelDebianFlavor  = "KERNEL_DEBIAN_FLAVOR"
	VarKernelUbuntuRelease = "KERNEL_UBUNTU_RELEASE"
	VarKernelUbuntuFlavor  = "KERNEL_UBUNTU_FLAVOR"
	VarContainerImage      = "CONTAINER_IMAGE"
	VarNodeArch            = "NODE_ARCH" // as Go, container images and node labels spell it
	VarModName             = "MOD_NAME"
	VarModNamespace        = "MOD_NAMESPACE"
)

// variables gives every variable of the closed list and how to read it from a Version.
// A nil function marks those that the caller gives (the node's processor, the Module's name, its namespace, its image).
var variables = map[string]func(*Version) string{
	VarKernelFullVersion:   func(v *Version) string { return v.Full },
	VarKernelVersion:       func(v *Version) string { return v.Full },
	VarKernelXYZ:           func(v *Version) string { return v.XYZ },
	VarKernelX:             func(v *Version) string { return v.X },
	VarKernelY:             func(v *Version) string { return v.Y },
	VarKernelZ:             func(v *Version) string { return v.Z },
	VarKernelRHELVersion:   func(v *Version) string { return v.RHELVersion },
	VarKernelRHELRelease:   func(v *Version) string { return v.RHELRelease },
	VarKernelRHELArch:      func(v *Version) string { return v.RHELArch },
	VarKernelDebianRelease: func(v *Version) string { return v.DebianRelease },
	VarKernelDebianFlavor:  func(v *Version) string { return v.DebianFlavor },
	VarKernelUbuntuRelease: func(v *Version) string { return v.DebianRelease },
	VarKernelUbuntuFlavor:  func(v *Version) string { return v.DebianFlavor },
	VarContainerImage:      nil,
	VarNodeArch:            nil,
	VarModName:             nil,
	VarModNamespace:        nil,
}

// VariableNames returns the closed list of template variables, sorted.
// The admission policy that refuses unknown variables is tested against it.
func VariableNames() []string {
	return slices.Sorted(maps.Keys(variables))
}

// Variables returns the value of every variable that this version gives, and those of extra
// (CONTAINER_IMAGE, NODE_ARCH, MOD_NAME, MOD_NAMESPACE), which win. Variables without a value are left out.
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

// Substitute replaces $NAME and ${NAME} in template by values, in one pass: what a value contains is not substituted again.
// A "$" that no name follows is kept. It is an error, which names the variable, when the variable is unknown,
// has no value (a RHEL variable on a kernel that is not RHEL's, say), or when "${" is not closed.
func Substitute(template string, values map[string]string) (string, error) {
	parsed, err := parseTemplate(template)
	if err != nil {
		return "", err
	}
	return parsed.render(func(name string) string { return values[name] })
}

// segment is literal text followed by a variable; the last segment of a template may have no variable.
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

// variableAt reads the name that follows a "$". An empty name means that the "$" stands for itself.
func variableAt(after string) (name, rest string, err error) {
	if braced, ok := strings.CutPrefix(after, "{"); ok {
		name, rest, ok = strings.Cut(braced, "}")
		if !ok {
			return "", "", fmt.Errorf("unclosed variable %q: the closing brace is missing", "${"+braced)
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
		return "", "", fmt.Errorf("unknown variable %s: known are %s", name, strings.Join(VariableNames(), ", "))
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
			return "", missingValue(s.variable, value(VarKernelFullVersion))
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

var errNoVersion = errors.New("the kernel version is not known")
