// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"regexp"
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

// reference finds $NAME and ${NAME}, also with a bad name in the braces, or without the last one.
var reference = regexp.MustCompile(`\$(?:\{([^}]*)(\}?)|([A-Za-z_][A-Za-z0-9_]*))`)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Substitute replaces $NAME and ${NAME} in template by values, in one pass. A "$" that no name
// follows stays. It is an error if a variable is unknown or has no value (such as a RHEL variable
// on another kernel), or if "${" is not closed.
func Substitute(template string, values map[string]string) (string, error) {
	names, err := variablesIn(template)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if values[name] == "" {
			return "", missingValue(name, values[varFullVersion])
		}
	}
	return reference.ReplaceAllStringFunc(template, func(found string) string { return values[strings.Trim(found, "${}")] }), nil
}

// variablesIn are the names of the variables in a template.
func variablesIn(template string) ([]string, error) {
	var names []string
	for _, found := range reference.FindAllStringSubmatch(template, -1) {
		braced, closing, bare := found[1], found[2], found[3]
		switch {
		case bare == "" && closing == "":
			return nil, fmt.Errorf("variable %q lacks its closing brace", found[0])
		case bare == "" && !identifier.MatchString(braced):
			return nil, fmt.Errorf("%q is not a variable name", braced)
		}
		one := braced + bare
		if _, known := variables[one]; !known {
			return nil, fmt.Errorf("unknown variable %s; the variables are %s", one, strings.Join(VariableNames(), ", "))
		}
		names = append(names, one)
	}
	return names, nil
}

// missingValue says why a known variable has no value for this kernel.
func missingValue(variable, version string) error {
	if variables[variable] == nil {
		return fmt.Errorf("variable %s has no value here", variable)
	}
	if version == "" {
		return fmt.Errorf("variable %s: the kernel version is unknown", variable)
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
